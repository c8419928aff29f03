# SPDX-License-Identifier: BSD-2-Clause
"""Devices on loopback, connected by the connection manager: words for short tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from livedma.errors import LivedmaError
from livedma.rdma import Device, cm
from livedma.rdma.cm.manager import Manager

PORT = 7174
RTU = 0x14
PATIENCE = 20.0
IMPATIENT = cm.Timing(packet_lifetime=8, response_timeout=12, max_retries=3)
# No other test run uses them at the same time.
_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
HERE, THERE, ELSEWHERE, NOBODY = (f"{_NET}.{host}" for host in (1, 2, 3, 77))


def device_at(address: str, **options: Any) -> Device:
    """Of ::1 there is one only: waits for another test there."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return Device(address, **options)
        except LivedmaError as error:
            if "in use" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.1)


@contextmanager
def devices(
    addresses: tuple[str, str] = (HERE, THERE), timing: cm.Timing | None = None, **options: Any
) -> Iterator[tuple[Device, Device]]:
    with ExitStack() as stack:
        one = stack.enter_context(device_at(addresses[0], **options))
        two = (
            one
            if addresses[0] == addresses[1]
            else stack.enter_context(device_at(addresses[1], **options))
        )
        for device in {one, two}:
            cm.manager(device, timing=timing)
        yield one, two


@contextmanager
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@contextmanager
def connected(
    addresses: tuple[str, str] = (HERE, THERE), **setup: object
) -> Iterator[tuple[cm.Connection, cm.Connection]]:
    with devices(addresses) as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        accepting = threads.submit(lambda: listener.get(PATIENCE).accept(timeout=PATIENCE))
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE, **setup)  # type: ignore[arg-type]
        with mine, accepting.result(PATIENCE) as theirs:
            yield mine, theirs


def exchange(mine: cm.Connection, theirs: cm.Connection, data: bytes = b"over here") -> None:
    """A SEND each way."""
    for source, sink in ((mine, theirs), (theirs, mine)):
        memory = bytearray(len(data))
        with sink.pd.register(memory) as region:
            sink.qp.post_recv(7, [region[:]])
            source.qp.post_send(1, "SEND", inline=data)
            assert [c.status for c in source.cq.wait(PATIENCE)] == ["SUCCESS"]
            assert [(c.wr_id, c.status) for c in sink.recv_cq.wait(PATIENCE)] == [(7, "SUCCESS")]
        assert memory == data


def wait_until(condition: object) -> None:
    waiting = threading.Event()
    for _ in range(2000):
        if condition():  # type: ignore[operator]
            return
        waiting.wait(0.01)
    raise AssertionError("it did not happen in 20 seconds")


def holding(manager: Manager, attribute: int) -> Callable[[], None]:
    """Keeps back what a manager sends of one kind, until the returned function is called."""
    gsi = manager._gsi
    send, held = gsi.send, []

    def hold(mad: bytes, destination: str) -> None:
        if mad[17] == attribute:
            held.append((mad, destination))
        else:
            send(mad, destination)

    def release() -> None:
        gsi.send = send  # type: ignore[method-assign]
        for mad, destination in held:
            send(mad, destination)

    gsi.send = hold  # type: ignore[method-assign]
    return release


class Silent:
    """Says nothing any more."""

    def send(self, mad: bytes, destination: str) -> None:
        pass

    def receive(self, timeout: float) -> list[tuple[bytes, str]]:
        raise ValueError("closed")
