# SPDX-License-Identifier: BSD-2-Clause
"""Words for tests of the tap: what was captured, known traffic, either side by hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import HERE, THERE
from pairs import End

from livedma._native.tap import TapSession
from livedma._native.wire import Batch
from livedma.rdma import Device

ADDRESSES = (HERE, THERE)


@dataclass(frozen=True)
class Seen:
    """What a test asks about a captured packet; outlives the batch."""

    frame: bytes
    length: int
    direction: str
    operation: str
    dest_qp: int
    src_qp: int
    psn: int
    icrc_ok: bool | None
    time_ns: int = field(compare=False)  # of each reader's own offset to the wall clock


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.002)


@contextmanager
def tapped(address: str, *, wait: bool = True, **options: Any) -> Iterator[TapSession]:
    """A session at the device there; wait: until it is attached."""
    session = TapSession(address, **options)
    try:
        assert session.connect(0 if not wait else 5000) or not wait
        yield session
    finally:
        session.close()


def read(session: TapSession, timeout_ms: int = 0) -> list[Seen]:
    """All that is in the ring, until nothing came for that long."""
    batch, seen = Batch(4096, 4096 * 4096), []
    while session.poll(batch, timeout_ms):
        for packet in batch:
            fields = packet.to_dict()
            seen.append(
                Seen(
                    packet.frame,
                    packet.length,
                    fields["direction"],
                    fields["opcode_name"],
                    packet.dest_qp,
                    fields.get("deth", {}).get("src_qp", 0),
                    packet.psn,
                    packet.icrc_ok,
                    packet.time_ns,
                )
            )
    return seen


def finish(session: TapSession) -> list[Seen]:
    """Ends the tap, then reads what is left."""
    session.detach()
    return read(session)


def exchange(a: End, b: End, length: int = 60_000) -> None:
    """One of each operation and a few long messages, until nothing is under way any more."""
    remote = {"remote_va": b.region.va, "rkey": b.region.rkey}
    b.qp.post_recv(9, [b.region[500_000:600_000]])
    a.fill(0, length)
    a.qp.post_send(1, "WRITE", [a.region[0:length]], **remote)
    a.qp.post_send(2, "SEND_WITH_IMM", [a.region[0 : length // 2]], imm=5)
    a.qp.post_send(3, "READ", [a.region[300_000 : 300_000 + length]], **remote)
    a.qp.post_send(4, "FETCH_ADD", [a.region[0:8]], swap_add=1, **remote)
    assert [c.status for c in a.complete(4)] == ["SUCCESS"] * 4
    assert [c.status for c in b.complete(1)] == ["SUCCESS"]
    settle(a, b)


def arrived(device: Device) -> int:
    """Packets that came to the device, whatever it thought of them."""
    refused = ("dropped_icrc", "dropped_malformed", "dropped_no_qp", "dropped_not_peer")
    return sum(device.counters[name] for name in ("rcvd_pkts", *refused))


def settle(a: End, b: End) -> None:
    """Waits until all that was sent has arrived."""

    def is_quiet() -> bool:
        one, other = a.device.counters, b.device.counters
        return bool(
            one["sent_pkts"] == other["rcvd_pkts"] and one["rcvd_pkts"] == other["sent_pkts"]
        )

    until(is_quiet)


def name_of(address: str, waiting: int | None = None) -> str:
    """The abstract name at which the device, or one of its waiting readers, is found."""
    return f"\0livedma/tap/{address}%0" + ("" if waiting is None else f"/waiting{waiting}")


@contextmanager
def impostor(address: str) -> Iterator[socket.socket]:
    """Listens where a device would."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name_of(address))
        listener.listen(4)
        yield listener


def caller(address: str) -> socket.socket:
    """A connection to the device as a reader makes it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(name_of(address))
    sock.settimeout(60)
    return sock
