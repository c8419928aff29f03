# SPDX-License-Identifier: BSD-2-Clause
"""What waits for asyncio has the name of what blocks, and `_async`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from livedma import memory, rdma
from livedma.rdma import cm


def coroutines() -> Iterator[tuple[object, str]]:
    for module in (rdma, cm, memory):
        public = [one for name, one in vars(module).items() if not name.startswith("_")]
        for owner in (module, *(one for one in public if inspect.isclass(one))):
            for name in dir(owner):
                if not name.startswith("_") and inspect.iscoroutinefunction(getattr(owner, name)):
                    yield owner, name


def test_each_coroutine_has_a_twin_that_blocks() -> None:
    found = list(coroutines())
    assert {"wait_async", "wait_disconnected_async"} <= {name for _, name in found}
    wrong = [
        f"{owner}.{name}"
        for owner, name in found
        if not name.endswith("_async") or not hasattr(owner, name.removesuffix("_async"))
    ]
    assert not wrong
