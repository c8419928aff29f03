# SPDX-License-Identifier: BSD-2-Clause
"""Two devices on loopback, connected without a connection manager: words for short tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from livedma.rdma import Completion, Device

RIGHTS = ("remote_write", "remote_read", "remote_atomic")
LOOPBACK = {4: ("127.0.0.1", "127.0.0.2"), 6: ("::1", "::1")}


class End:
    """A device's queue pair, with one region over all its memory."""

    def __init__(self, device: Device, kind: str = "RC", size: int = 1 << 20, **init: Any) -> None:
        self.device = device
        self.pd = device.protection_domain()
        self.cq = device.completion_queue(4096)
        self.memory = bytearray(size)
        self.region = self.pd.register(self.memory, *RIGHTS)
        self.qp = self.pd.queue_pair(kind, self.cq, **init)

    def connect(self, peer: End, **attributes: Any) -> None:
        self.connect_to(peer.device.address, peer.qp.number, **attributes)

    def connect_to(
        self, address: str, number: int, mtu: int = 1024, timeout: int = 19, **attributes: Any
    ) -> None:
        """timeout: two seconds, which a busy machine keeps."""
        self.qp.modify("INIT", access=RIGHTS, qkey=0x11111111)
        self.qp.modify("RTR", mtu=mtu, dst=address, dest_qp=number, rq_psn=7, **attributes)
        self.qp.modify("RTS", sq_psn=7, timeout=timeout, **attributes)

    def fill(self, offset: int, length: int, seed: int = 1) -> bytes:
        data = random.Random(seed).randbytes(length)
        self.memory[offset : offset + length] = data
        return data

    def complete(self, count: int = 1) -> list[Completion]:
        """Waits for so many completions."""
        found: list[Completion] = []
        while len(found) < count:
            more = self.cq.wait(60)
            assert more, f"{len(found)} of {count} completions came"
            found += more
        return found


@contextmanager
def connected(
    kind: str = "RC",
    version: int = 4,
    *,
    addresses: tuple[str, str] | None = None,
    init: dict[str, Any] | None = None,
    device: dict[str, Any] | None = None,
    **attributes: Any,
) -> Iterator[tuple[End, End]]:
    """Two ends; at ::1, of which there is one, both are on the same device.

    init and device: options of the queue pairs and the devices.
    """
    with ExitStack() as stack:
        names = addresses or LOOPBACK[version]
        devices = {
            name: stack.enter_context(Device(name, **(device or {})))
            for name in dict.fromkeys(names)
        }
        a, b = (End(devices[name], kind, **(init or {})) for name in names)
        a.connect(b, **attributes)
        b.connect(a, **attributes)
        yield a, b
