# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts for each test, and captures on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from taps import Tap

from livedma.lab.hosts import Host, two_hosts


@pytest.fixture
def hosts(bpf: None) -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


@pytest.fixture
def tap() -> Iterator[Callable[..., Tap]]:
    """Makes taps; direction "rx" or "tx", hook "xdp" or "tc"."""
    from livedma._native.bpf import CaptureSession

    sessions = []

    def make(host: Host, direction: str = "rx", hook: str = "xdp", **options: Any) -> Tap:
        session = CaptureSession(
            rx=direction == "rx", tx=direction == "tx", rx_by_tc=hook == "tc", **options
        )
        sessions.append(session)
        with host.inside():
            session.attach(host.ifindex)
        return Tap(session, host)

    yield make
    for session in sessions:
        session.close()
