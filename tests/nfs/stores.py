# SPDX-License-Identifier: BSD-2-Clause
"""Stores for tests: of a directory, by either kind of handles, as one or another client."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from livedma.nfs.numbers import CreateMode, NfsError, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.context import Credential
from livedma.nfs.server.store import CreateHow, Node, Settings, Store

SECRET = b"thirty-two bytes that nobody knows"
ROOT = Credential(0, 0)
ALICE = Credential(1001, 1001, (2001,))
BOB = Credential(1002, 1002)
UNCHECKED = CreateHow(CreateMode.UNCHECKED)
GUARDED = CreateHow(CreateMode.GUARDED)


def make_store(path: Path, by_kernel: bool = True, **rules: Any) -> Store:
    config = Config(**({"squash": "none"} | rules))
    return Store(path, secret=SECRET, config=config, by_kernel=by_kernel)


def is_root() -> bool:
    return os.geteuid() == 0


def status_of(call: Callable[..., object], *args: Any, **kwargs: Any) -> Status:
    """The status that a call fails with; OK if it does not."""
    try:
        call(*args, **kwargs)
    except NfsError as failure:
        return failure.status
    return Status.OK


def make_file(store: Store, directory: Node, name: bytes, data: bytes = b"") -> Node:
    made = store.create_file(directory, name, UNCHECKED, Settings(mode=0o644))
    assert made.fd is not None
    os.write(made.fd, data)
    os.close(made.fd)
    return made.node
