# SPDX-License-Identifier: BSD-2-Clause
"""A whole server under attack: headers and chunk lists around real calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.nfs.besieged import CONTENT, Intruder, Siege
from tests.nfs.calling import op
from tests.rpc.rdma_chunks import Segment
from tests.rpc.rdma_header import ErrorCode

from livedma.nfs.numbers import Op, Status
from livedma.rpc.message import decode_reply
from livedma.rpc.xdr import Decoder, Encoder

pytestmark = pytest.mark.slow

MSG, NOMSG, MSGP, DONE, ERROR = range(5)
LONG = 8192
ROOM = 1 << 16  # where chunks for data begin in an intruder's memory


@dataclass(frozen=True)
class Lists:
    """A header's lists, right or wrong: read chunks are (position, segment)."""

    reads: tuple[tuple[int, Segment], ...] = ()
    writes: tuple[tuple[Segment, ...], ...] = ()
    reply: tuple[Segment, ...] | None = None

    def encode(self, xid: int, proc: int = MSG, version: int = 1) -> bytes:
        out = Encoder()
        out.u32(xid, version, 32, proc)
        for position, segment in self.reads:
            out.u32(1, position)
            _encode_segment(out, segment)
        out.u32(0)
        for chunk in self.writes:
            out.u32(1)
            out.array(chunk, _encode_segment)
        out.u32(0, self.reply is not None)
        if self.reply is not None:
            out.array(self.reply, _encode_segment)
        return bytes(out)


def _encode_segment(out: Encoder, segment: Segment) -> None:
    out.u32(segment.handle, segment.length)
    out.u64(segment.offset)


def read_op(intruder: Intruder, count: int, offset: int = 0) -> bytes:
    return op(Op.READ, lambda out: (out.raw(intruder.stateid), out.u64(offset), out.u32(count)))


def write_op(intruder: Intruder, length: int) -> bytes:
    """Without its data, which is elsewhere."""
    return op(
        Op.WRITE, lambda out: (out.raw(intruder.stateid), out.u64(0), out.u32(0), out.u32(length))
    )


def readdir_op(most: int) -> bytes:
    return op(Op.READDIR, lambda out: (out.u64(0), out.fixed(bytes(8), 8), out.u32(most, most, 0)))


def send(
    intruder: Intruder, message: bytes, lists: Lists, proc: int = MSG, version: int = 1
) -> int:
    xid = int.from_bytes(message[:4], "big")
    inline = message if proc == MSG else b""
    intruder.peer.send(lists.encode(xid, proc, version) + inline)
    return xid


def status_of(reply: bytes) -> Status:
    decoder = Decoder(reply)
    decode_reply(decoder)
    return Status(decoder.u32())


Make = Callable[[Intruder], Lists]

REFUSED: dict[str, Make] = {
    "huge": lambda one: Lists(writes=((Segment(one.peer.region.key, 0xFFFFFFFF, 0),),)),
    "huge together": lambda one: Lists(writes=((one.peer.segment(0, 1 << 20),) * 17,)),
    "beyond all addresses": lambda one: Lists(
        writes=((Segment(one.peer.region.key, 4096, (1 << 64) - 100),),)
    ),
    "too many": lambda one: Lists(writes=((one.peer.segment(0, 1),),) * 17),
    "positions that go back": lambda one: Lists(
        reads=((24, one.peer.segment(0, 8)), (8, one.peer.segment(8, 64)))
    ),
    "positions in a circle": lambda one: Lists(
        reads=tuple((at, one.peer.segment(0, 8)) for at in (8, 16, 24, 8, 16, 24))
    ),
    "a position that is none": lambda one: Lists(reads=((5, one.peer.segment(0, 8)),)),
    "positions that overlap": lambda one: Lists(
        reads=((8, one.peer.segment(0, 64)), (24, one.peer.segment(0, 64)))
    ),
    "a position behind the end": lambda one: Lists(reads=((4000, one.peer.segment(0, 8)),)),
    "position zero beside a message": lambda one: Lists(reads=((0, one.peer.segment(0, 64)),)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_chunk_lists_that_break_a_rule(intruder: Intruder, name: str) -> None:
    """ERR_CHUNK, before the call is looked at: its slot is as it was."""
    message = intruder.message(read_op(intruder, 4096))
    xid = send(intruder, message, REFUSED[name](intruder))
    assert intruder.peer.error(xid).code == ErrorCode.ERR_CHUNK
    intruder.goes_on()


@pytest.mark.parametrize(
    ("proc", "version", "code"),
    [
        (MSGP, 1, ErrorCode.ERR_CHUNK),
        (NOMSG, 1, ErrorCode.ERR_CHUNK),
        (9, 1, ErrorCode.ERR_CHUNK),
        (MSG, 2, ErrorCode.ERR_VERS),
        (DONE, 1, None),
        (ERROR, 1, None),
    ],
)
def test_messages_of_other_kinds(
    siege: Siege, intruder: Intruder, proc: int, version: int, code: ErrorCode | None
) -> None:
    """Real calls behind wrong headers; what is no call is dropped and counted."""
    message = intruder.message(read_op(intruder, 100))
    dropped = facts_of(siege, intruder)["dropped_calls"]
    for _ in range(20):  # more than there are credits
        xid = send(intruder, message, Lists(), proc, version)
        if code is not None:
            assert intruder.peer.error(xid).code == code
    intruder.goes_on()
    assert facts_of(siege, intruder)["dropped_calls"] - dropped == (0 if code else 20)
    assert not intruder.peer.replies


def facts_of(siege: Siege, intruder: Intruder) -> dict[str, int]:
    """What the server says of the intruder's connection."""
    (session,) = (one for one in siege.control.ask("sessions") if one["id"] == intruder.id.hex())
    number = session["connections"][-1]
    (facts,) = (one for one in siege.control.ask("connections") if one["number"] == number)
    ret: dict[str, int] = facts
    return ret


ACCEPTED: dict[str, tuple[Make, int]] = {
    "two for the same memory": (
        lambda one: Lists(writes=((one.peer.segment(ROOM, 4096),) * 2,)),
        4096,
    ),
    "overlapping": (
        lambda one: Lists(
            writes=((one.peer.segment(ROOM, 3000), one.peer.segment(ROOM + 1500, 3000)),)
        ),
        4096,
    ),
    "unaligned": (lambda one: Lists(writes=((one.peer.segment(ROOM + 3, 4099),),)), 4096),
    "of single bytes": (
        lambda one: Lists(writes=(tuple(one.peer.segment(ROOM + i, 1) for i in range(64)),)),
        64,
    ),
    "empty ones between": (
        lambda one: Lists(
            writes=((one.peer.segment(0, 0), one.peer.segment(ROOM, 5000), Segment(1, 0, 0)),)
        ),
        4096,
    ),
    "too small": (lambda one: Lists(writes=((one.peer.segment(ROOM, 100),),)), 100),
    "of no bytes": (lambda one: Lists(writes=((one.peer.segment(ROOM, 0),),)), 0),
    "one too many": (
        lambda one: Lists(
            writes=((one.peer.segment(ROOM, 4096),), (one.peer.segment(ROOM + 5000, 4096),))
        ),
        4096,
    ),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_write_chunks_that_are_odd(siege: Siege, intruder: Intruder, name: str) -> None:
    """They get what fits, and no byte beside it."""
    make, count = ACCEPTED[name]
    lists = make(intruder)
    message = intruder.message(read_op(intruder, 4096))
    header, reply = intruder.peer.reply(send(intruder, message, lists))
    assert status_of(reply) == Status.OK
    assert sum(one.length for one in header.writes[0]) == count
    assert int.from_bytes(reply[-4:], "big") == count
    expected = bytearray(len(intruder.peer.memory))
    left, base = CONTENT[:count], intruder.peer.region.va
    for segment in lists.writes[0]:
        piece, left = left[: segment.length], left[segment.length :]
        at = segment.offset - base
        expected[at : at + len(piece)] = piece
    assert intruder.peer.memory == expected


@pytest.mark.parametrize("what", ["read", "readdir"])
def test_long_reply_without_a_chunk(siege: Siege, intruder: Intruder, what: str) -> None:
    """ERR_CHUNK (RFC 8166, 4.5.2); the call was executed, and its slot says so."""
    if what == "read":
        message = intruder.message(read_op(intruder, 8192))
    else:
        message = intruder.message(readdir_op(30_000), handle=intruder.lookup(b"many"))
    assert intruder.peer.error(send(intruder, message, Lists())).code == ErrorCode.ERR_CHUNK
    again = send(intruder, message, Lists(reply=(intruder.peer.segment(0, 40_000),)))
    _, reply = intruder.peer.reply(again)
    assert status_of(reply) == Status.RETRY_UNCACHED_REP


# Chunks that nobody may use: the connection ends, and with it whatever the call was.

BAD_KEYS: dict[str, Callable[[Intruder], Segment]] = {
    "no key": lambda one: Segment(0xBAD, LONG, one.peer.region.va),
    "beyond the region": lambda one: Segment(
        one.peer.region.key, LONG, one.peer.region.va + len(one.peer.memory) - 2048
    ),
    "before the region": lambda one: Segment(one.peer.region.key, LONG, 4096),
    "its own Receives": lambda one: one.peer.inbox_segment(LONG),
}


@pytest.mark.parametrize("where", ["read", "readdir", "write", "call"])
@pytest.mark.parametrize("name", BAD_KEYS)
def test_keys_that_are_none(siege: Siege, name: str, where: str) -> None:
    """Nothing is executed whose arguments cannot be had: sent again, it is."""
    with Intruder(siege) as intruder, Intruder(siege) as again:
        intruder.enter()
        bad = BAD_KEYS[name](intruder)
        if where == "read":
            send(intruder, intruder.message(read_op(intruder, LONG)), Lists(writes=((bad,),)))
        elif where == "readdir":
            message = intruder.message(readdir_op(6000), handle=intruder.lookup(b"many"))
            send(intruder, message, Lists(reply=(bad,)))
        elif where == "write":
            message = intruder.message(write_op(intruder, LONG))
            send(intruder, message, Lists(reads=((len(message), bad),)))
        else:
            message = intruder.message(read_op(intruder, LONG))
            send(intruder, message, Lists(reads=((0, bad),)), NOMSG)
        intruder.peer.await_end()
        assert siege.file.read_bytes() == CONTENT
        again.take_over(intruder)
        if where in ("write", "call"):
            assert again.write(0, CONTENT[:LONG], chunk=True, is_again=True).status == Status.OK
        again.leave()


@pytest.mark.parametrize("is_mine", [True, False])
@pytest.mark.parametrize("length", [4, 64, 1000, 4096])
def test_garbage_in_the_place_of_a_call(intruder: Intruder, is_mine: bool, length: int) -> None:
    """RDMA_NOMSG. With another XID than its header's it is ERR_CHUNK; else RPC has a look at it."""
    xid = 0x7E57
    garbage = (xid if is_mine else 5).to_bytes(4, "big") + bytes([0xFF] * (length - 4))
    intruder.peer.memory[:length] = garbage
    intruder.peer.send(Lists(reads=((0, intruder.peer.segment(0, length)),)).encode(xid, NOMSG))
    if not is_mine:
        assert intruder.peer.error(xid).code == ErrorCode.ERR_CHUNK
    assert intruder.read(0, 8).status == Status.OK
    assert not intruder.peer.replies  # it is no call


def test_another_xid_than_the_header_has(intruder: Intruder) -> None:
    """ERR_CHUNK: whose reply would it be?"""
    message = intruder.message(read_op(intruder, 8))
    for fast in (True, False):
        xid = 0x7E58 + fast
        lists = Lists() if fast else Lists(reads=((len(message), intruder.peer.segment(0, 4)),))
        intruder.peer.send(lists.encode(xid) + message)
        assert intruder.peer.error(xid).code == ErrorCode.ERR_CHUNK
    intruder.goes_on()


def test_a_read_chunk_in_the_middle_of_what_is_no_data(siege: Siege, intruder: Intruder) -> None:
    """The whole message is what counts: a READ whose stateid comes out of a chunk is a READ."""
    message = intruder.message(read_op(intruder, 8))
    at = message.index(intruder.stateid)
    intruder.peer.memory[:16] = intruder.stateid
    lists = Lists(reads=((at, intruder.peer.segment(0, 16)),))
    xid = int.from_bytes(message[:4], "big")
    intruder.peer.send(lists.encode(xid) + message[:at] + message[at + 16 :])
    _, reply = intruder.peer.reply(xid)
    assert status_of(reply) == Status.OK and CONTENT[:8] in reply
