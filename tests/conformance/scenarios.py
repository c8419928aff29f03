# SPDX-License-Identifier: BSD-2-Clause
"""What two devices do with each other, whichever they are. The requester is always `link.a`.

Each scenario checks every byte, and that each request completed once and as it should.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from endpoints import (
    ALL,
    GRH_BYTES,
    Attributes,
    Datagram,
    Done,
    Endpoint,
    Memory,
    Piece,
    QueuePair,
    Work,
    digest_of,
    pattern,
)

SIZE = 1 << 18  #: of each side's memory
HALF = SIZE // 2
FIRST_PSNS = (0xFFFFFA, 0x123456)  #: one side's numbers wrap in the middle of the first message
QKEY = 0x1EE7C0DE
WRITES = ("SEND", "WRITE_WITH_IMM", "SEND_WITH_IMM", "WRITE")  #: what ACKs answer
READS = ("READ", "FETCH_ADD")
UNTOUCHED = 64  #: bytes looked at behind what was to be written


@dataclass
class Side:
    endpoint: Endpoint
    address: str
    memory: Memory
    qp: QueuePair

    def at(self, offset: int, length: int) -> Piece:
        return self.memory.at(offset, length)

    def no_more(self) -> None:
        """Nothing has completed a second time, or that was not asked for."""
        assert self.qp.completions("send", 1, 0.0) == []
        assert self.qp.completions("recv", 1, 0.0) == []


@dataclass
class Link:
    kind: str
    a: Side
    b: Side
    attributes: Attributes

    @property
    def sizes(self) -> list[int]:
        mtu = self.attributes.mtu
        return [0, 1, 2, 3, 64, mtu - 1, mtu, mtu + 1, 4 * mtu, 65_536]

    def sent(self, count: int = 1) -> list[Done]:
        return self.a.qp.completions("send", count)

    def received(self, count: int = 1) -> list[Done]:
        return self.b.qp.completions("recv", count)

    def remote(self, offset: int) -> dict[str, int]:
        """Where b's memory is, for a's requests."""
        return {"remote_va": self.b.memory.va + offset, "rkey": self.b.memory.key}


@contextlib.contextmanager
def linked(
    a: Endpoint,
    b: Endpoint,
    kind: str,
    version: int,
    attributes: Attributes,
    *,
    region_access: Sequence[str] = (*ALL, "bind"),
    is_connected: bool = True,
) -> Iterator[Link]:
    """Two sides with memory and a queue pair each, in RTS; all of it goes away at the end."""
    with contextlib.ExitStack() as stack:
        sides = []
        for endpoint in (a, b):
            memory = endpoint.memory(SIZE, region_access)
            stack.callback(memory.close)
            qp = endpoint.queue_pair(kind)
            stack.callback(qp.close)
            sides.append(Side(endpoint, endpoint.address(version), memory, qp))
        for own, other, psns in (
            (sides[0], sides[1], FIRST_PSNS),
            (sides[1], sides[0], FIRST_PSNS[::-1]),
        ):
            if kind == "UD":
                own.qp.activate(own.address, QKEY, psns[0])
            elif is_connected:
                route = (own.address, other.address, other.qp.number)
                own.qp.connect(*route, psns, attributes)
        yield Link(kind, *sides, attributes)


def is_done(done: Done, wr_id: int, operation: str) -> None:
    assert (done.wr_id, done.status, done.operation) == (wr_id, "SUCCESS", operation), done


def send(link: Link) -> None:
    for wr_id, size in enumerate(link.sizes):
        link.a.memory.fill(0, size, wr_id)
        link.b.memory.write(size, bytes(UNTOUCHED))
        link.b.qp.receive([(100 + wr_id, [link.b.at(0, HALF)])])
        imm = 0xA1B2C300 + wr_id if wr_id % 2 else None
        operation = "SEND" if imm is None else "SEND_WITH_IMM"
        link.a.qp.send([Work(wr_id, operation, [link.a.at(0, size)], imm=imm or 0)])
        (sent,), (received,) = link.sent(), link.received()
        is_done(sent, wr_id, "SEND")
        is_done(received, 100 + wr_id, "RECV")
        assert (received.length, received.imm) == (size, imm)
        expected = pattern(size, wr_id) + bytes(UNTOUCHED)
        assert link.b.memory.digest(0, size + UNTOUCHED) == digest_of(expected)


def scatter_and_gather(link: Link) -> None:
    mtu = link.attributes.mtu
    link.a.memory.fill(0, 3 * mtu, 5)
    gathered = [link.a.at(0, 7), link.a.at(7, mtu), link.a.at(7 + mtu, 1), link.a.at(8 + mtu, 900)]
    scattered = [link.b.at(0, mtu - 1), link.b.at(20_000, 3), link.b.at(40_000, 2 * mtu)]
    link.b.qp.receive([(1, scattered)])
    link.a.qp.send([Work(2, "SEND", gathered)])
    (sent,), (received,) = link.sent(), link.received()
    is_done(sent, 2, "SEND")
    is_done(received, 1, "RECV")
    total = 8 + mtu + 900
    assert received.length == total
    got = link.b.memory.read(0, mtu - 1) + link.b.memory.read(20_000, 3)
    got += link.b.memory.read(40_000, total - mtu - 2)
    assert got == pattern(3 * mtu, 5)[:total]


def write(link: Link) -> None:
    for wr_id, size in enumerate(link.sizes):
        link.a.memory.fill(0, size, wr_id)
        link.b.memory.write(11, bytes(UNTOUCHED))
        link.b.memory.write(11 + size, bytes(UNTOUCHED))
        imm = 0xFF000000 + wr_id if wr_id % 2 else None
        operation = "WRITE" if imm is None else "WRITE_WITH_IMM"
        if imm is not None:
            link.b.qp.receive([(100 + wr_id, [])])
        work = Work(wr_id, operation, [link.a.at(0, size)], **link.remote(11), imm=imm or 0)
        link.a.qp.send([work])
        is_done(link.sent()[0], wr_id, "WRITE")
        if imm is not None:
            (received,) = link.received()
            is_done(received, 100 + wr_id, "RECV_WRITE_WITH_IMM")
            assert (received.length, received.imm) == (size, imm)
        expected = digest_of(pattern(size, wr_id) + bytes(UNTOUCHED))
        # What UC has sent is on its way at best: nobody says when it is there.
        end_s = time.monotonic() + (20 if link.kind == "UC" and imm is None else 0)
        while (got := link.b.memory.digest(11, size + UNTOUCHED)) != expected:
            assert time.monotonic() < end_s, got
            time.sleep(0.01)


def read(link: Link, smallest: int = 0) -> None:
    for wr_id, size in enumerate(size for size in link.sizes if size >= smallest):
        link.b.memory.fill(13, size, 50 + wr_id)
        link.a.memory.write(size, bytes(UNTOUCHED))
        link.a.qp.send([Work(wr_id, "READ", [link.a.at(0, size)], **link.remote(13))])
        is_done(link.sent()[0], wr_id, "READ")
        expected = pattern(size, 50 + wr_id) + bytes(UNTOUCHED)
        assert link.a.memory.digest(0, size + UNTOUCHED) == digest_of(expected)


def atomics(link: Link) -> None:
    value, ones = 0x0102030405060708, (1 << 64) - 1
    link.b.memory.write(56, bytes(8) + value.to_bytes(8, "little") + bytes(8))
    steps = [
        ("FETCH_ADD", {"swap_add": 0x10}),
        ("FETCH_ADD", {"swap_add": ones}),  # minus one
        ("COMPARE_SWAP", {"compare": value + 0x0F, "swap_add": 7}),
        ("COMPARE_SWAP", {"compare": value, "swap_add": 9}),  # not equal: stays
        ("COMPARE_SWAP", {"compare": 7, "swap_add": ones}),
        ("FETCH_ADD", {"swap_add": 1}),  # wraps
    ]
    for wr_id, (operation, operands) in enumerate(steps):
        place = link.remote(64)
        work = Work(wr_id, operation, [link.a.at(8 * wr_id, 8)], **place, **operands)
        link.a.qp.send([work])
        is_done(link.sent()[0], wr_id, operation)
    read = link.a.memory.read(0, 8 * len(steps))
    old = [int.from_bytes(read[i : i + 8], "little") for i in range(0, len(read), 8)]
    assert old == [value, value + 0x10, value + 0x0F, 7, 7, ones]
    assert link.b.memory.read(56, 24) == bytes(24)


def invalidate(link: Link) -> None:
    """A key works until the peer says that it is done with it, and not once more."""
    rkey = link.b.endpoint.invalidatable(link.b.qp, link.b.memory, 4096, 8192)
    link.a.memory.fill(0, 8192, 3)
    place = {"remote_va": link.b.memory.va + 4096, "rkey": rkey}
    link.a.qp.send([Work(1, "WRITE", [link.a.at(0, 8192)], **place)])
    is_done(link.sent()[0], 1, "WRITE")
    assert link.b.memory.digest(4096, 8192) == digest_of(pattern(8192, 3))
    link.b.qp.receive([(2, [link.b.at(0, 4096)])])
    link.a.qp.send([Work(3, "SEND_WITH_INV", [link.a.at(0, 3000)], rkey=rkey)])
    is_done(link.sent()[0], 3, "SEND")
    (received,) = link.received()
    is_done(received, 2, "RECV")
    assert (received.length, received.invalidated) == (3000, rkey)
    assert link.b.memory.digest(0, 3000) == digest_of(pattern(8192, 3)[:3000])
    link.a.qp.send([Work(4, "WRITE", [link.a.at(0, 8)], **place)])
    assert [(d.wr_id, d.status) for d in link.sent()] == [(4, "REM_ACCESS_ERR")]


def pipelined(link: Link, operations: Sequence[str] = (*WRITES, *READS), rounds: int = 4) -> None:
    """Many at once, of several kinds in turn. Each round works on memory of its own.

    Only every third request is signaled, and the last.
    """
    mtu = link.attributes.mtu
    span = 3 * mtu + 7  # of each piece
    total = rounds * span
    link.a.memory.fill(0, HALF, 1)
    link.b.memory.fill(HALF, HALF, 2)
    link.b.memory.write(0, bytes(1024 + total))
    receives, works, arrivals = [], [], []
    for n in range(rounds):
        out, back = link.a.at(n * span, span), link.a.at(HALF + 1024 + n * span, span)
        landing = link.remote(1024 + n * span)
        requests: dict[str, tuple[Piece, dict[str, int]]] = {
            "SEND": (link.a.at(n * span, 8), {}),
            "WRITE_WITH_IMM": (out, {**landing, "imm": n}),
            "READ": (back, link.remote(HALF + n * span)),
            "FETCH_ADD": (link.a.at(HALF + 8 * n, 8), {**link.remote(0), "swap_add": n + 1}),
            "SEND_WITH_IMM": (out, {"imm": 1000 + n}),
            "WRITE": (out, landing),
        }
        landings: dict[str, tuple[list[Piece], int, int | None]] = {
            "SEND": ([link.b.at(64 + 8 * n, 8)], 8, None),
            "WRITE_WITH_IMM": ([], span, n),
            "SEND_WITH_IMM": ([link.b.at(HALF // 2 + n * span, span)], span, 1000 + n),
        }
        for operation in (one for one in requests if one in operations):
            piece, more = requests[operation]
            works.append(Work(len(works), operation, [piece], flags=(), **more))
            if operation in landings:
                pieces, length, imm = landings[operation]
                arrivals.append((len(receives), "SUCCESS", length, imm))
                receives.append((len(receives), pieces))
    works = [
        replace(work, flags=("signaled",)) if n % 3 == 0 or n == len(works) - 1 else work
        for n, work in enumerate(works)
    ]
    link.b.qp.receive(receives)
    link.a.qp.send(works)
    expected = [(work.wr_id, "SUCCESS") for work in works if work.flags]
    sent_off = [(d.wr_id, d.status) for d in link.sent(len(expected))]
    assert sent_off == expected, sent_off
    received = [(d.wr_id, d.status, d.length, d.imm) for d in link.received(len(arrivals))]
    assert received == arrivals, received
    sent = pattern(HALF, 1)
    if "WRITE" in operations:
        assert link.b.memory.digest(1024, total) == digest_of(sent[:total])
    if "SEND_WITH_IMM" in operations:
        assert link.b.memory.digest(HALF // 2, total) == digest_of(sent[:total])
    if "SEND" in operations:
        small = b"".join(sent[n * span : n * span + 8] for n in range(rounds))
        assert link.b.memory.read(64, 8 * rounds) == small
    if "READ" in operations:
        assert link.a.memory.digest(HALF + 1024, total) == digest_of(pattern(HALF, 2)[:total])
    if "FETCH_ADD" in operations:
        sums = [n * (n + 1) // 2 for n in range(rounds + 1)]
        fetched = b"".join(value.to_bytes(8, "little") for value in sums)
        assert link.a.memory.read(HALF, 8 * rounds) + link.b.memory.read(0, 8) == fetched


def pipelined_writes(link: Link) -> None:
    pipelined(link, WRITES)


def pipelined_reads(link: Link) -> None:
    pipelined(link, READS)


def datagrams(link: Link) -> None:
    mtu = link.attributes.mtu
    to = Datagram(link.a.address, link.b.address, link.b.qp.number, QKEY)
    for wr_id, size in enumerate([0, 1, 3, 64, mtu - 1, mtu]):
        link.a.memory.fill(0, size, wr_id)
        link.b.qp.receive([(100 + wr_id, [link.b.at(0, GRH_BYTES + mtu)])])
        imm = 77 if wr_id % 2 else None
        operation = "SEND" if imm is None else "SEND_WITH_IMM"
        link.a.qp.send([Work(wr_id, operation, [link.a.at(0, size)], imm=imm or 0, to=to)])
        is_done(link.sent()[0], wr_id, "SEND")
        (received,) = link.received()
        is_done(received, 100 + wr_id, "RECV")
        assert (received.length, received.imm) == (GRH_BYTES + size, imm)
        assert received.src_qp == link.a.qp.number
        assert link.b.memory.digest(GRH_BYTES, size) == digest_of(pattern(size, wr_id))


def unreliable_messages(link: Link, count: int) -> list[int]:
    """Sends numbered messages of three packets (UD: one), whatever becomes of them.

    Each that arrived is whole and right; returns their numbers in the order of arrival.
    """
    mtu, is_ud = link.attributes.mtu, link.kind == "UD"
    size, front = (mtu, GRH_BYTES) if is_ud else (2 * mtu + 5, 0)
    slot = size + front
    assert count * slot <= SIZE and 2 * count <= 64
    link.a.memory.fill(0, HALF, 9)
    # A message may come twice.
    link.b.qp.receive([(n, [link.b.at(n * slot, slot)]) for n in range(2 * count)])
    to = Datagram(link.a.address, link.b.address, link.b.qp.number, QKEY) if is_ud else None
    link.a.qp.send(
        Work(n, "SEND_WITH_IMM", [link.a.at(n * 16, size)], imm=n, to=to) for n in range(count)
    )
    assert [(d.wr_id, d.status) for d in link.sent(count)] == [(n, "SUCCESS") for n in range(count)]
    # The first may take its time; when nothing comes for a second, that was all.
    arrived = link.b.qp.completions("recv", 1)
    while more := link.b.qp.completions("recv", 2 * count - len(arrived), 1.0):
        arrived += more
    sent = pattern(HALF, 9)
    for slot_number, done in enumerate(arrived):
        assert (done.wr_id, done.status, done.length) == (slot_number, "SUCCESS", slot)
        assert done.imm is not None
        got = link.b.memory.digest(slot_number * slot + front, size)
        assert got == digest_of(sent[done.imm * 16 :][:size])
    return [done.imm for done in arrived if done.imm is not None]


RELIABLE = [send, scatter_and_gather, write, read, atomics, invalidate, pipelined]
UNRELIABLE = [send, scatter_and_gather, write]
