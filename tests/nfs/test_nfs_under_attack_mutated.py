# SPDX-License-Identifier: BSD-2-Clause
"""A whole server under attack: real calls, changed at random, by both transports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.nfs.besieged import CONTENT, STRANGER, Intruder, Siege, Stream
from tests.nfs.calling import op
from tests.nfs.operating import fattr, u64, xdr
from tests.rpc.rdma_chunks import ReadChunk
from tests.rpc.rdma_header import Header, decode_header

from livedma.nfs.numbers import PROGRAM, VERSION, Attribute, Op, Status
from livedma.rpc.message import Accepted, AcceptStatus, Call, Denied, decode_reply, encode_call
from livedma.rpc.xdr import Decoder

pytestmark = pytest.mark.slow

EXAMPLES = max(int(os.environ.get("LIVEDMA_SCHEDULES", "500")) // 3, 50)
WORDS = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF, 128, 129, 1 << 20]
AFTER = {
    Status.OK,
    Status.BADSESSION,
    Status.SEQ_MISORDERED,
    Status.SEQ_FALSE_RETRY,
    Status.RETRY_UNCACHED_REP,
}


def operations(one: Intruder) -> dict[str, tuple[bytes, ...]]:
    """What is behind SEQUENCE and PUTFH of the file; each is right as it is."""
    root, work = op(Op.PUTROOTFH), op(Op.LOOKUP) + xdr(b"work")
    locker = bytes(12) + xdr(b"locker")
    return {
        "read": (op(Op.READ) + one.stateid + u64(0) + xdr(100),),
        "read, getattr": (
            op(Op.READ) + one.stateid + u64(0) + xdr(100),
            op(Op.GETATTR) + xdr(2, 0x10, 0x2),
        ),
        "write": (op(Op.WRITE) + one.stateid + u64(0) + xdr(0, CONTENT[:64]),),
        "commit": (op(Op.COMMIT) + u64(0) + xdr(0),),
        "open": (root, one.open_op(b"file")),
        "create": (root, work, op(Op.CREATE) + xdr(2, b"made") + fattr({})),
        "lock": (op(Op.LOCK) + xdr(2, 0) + u64(0, 1) + xdr(1, 0) + one.stateid + locker,),
        "lockt": (op(Op.LOCKT) + xdr(1) + u64(0, 1, 0) + xdr(b"locker"),),
        "readdir": (root, op(Op.READDIR) + u64(0) + bytes(8) + xdr(2000, 3000, 1, 0x1A)),
        "setattr": (op(Op.SETATTR) + one.stateid + fattr({Attribute.SIZE: u64(len(CONTENT))}),),
        "rename": (
            root,
            work,
            op(Op.SAVEFH),
            op(Op.RENAME) + xdr(b"one", b"two"),
        ),
        "link": (op(Op.SAVEFH), root, work, op(Op.LINK) + xdr(b"linked")),
        "remove": (root, work, op(Op.REMOVE) + xdr(b"linked")),
        "readlink": (root, op(Op.LOOKUP) + xdr(b"way-out"), op(Op.READLINK)),
        "getattr": (op(Op.GETATTR) + xdr(2, 0xFFFFFFFF, 0x00BEFFFF),),
        "access": (op(Op.ACCESS) + xdr(0x3F), op(Op.SECINFO_NO_NAME) + xdr(0)),
        "test_stateid": (op(Op.TEST_STATEID) + xdr(1) + one.stateid,),
        "downgrade": (op(Op.OPEN_DOWNGRADE) + one.stateid + xdr(0, 3, 0),),
    }


@st.composite
def mutations(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What is done to a message, where (in thousandths of it), and with what."""
    what = st.sampled_from(["bit", "byte", "word", "cut", "insert", "drop"])
    value = st.one_of(st.sampled_from(WORDS), st.integers(0, 0xFFFFFFFF), st.sampled_from(list(Op)))
    return draw(st.lists(st.tuples(what, st.integers(0, 999), value), min_size=1, max_size=3))


def mutated(message: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    """The XID stays: it says whose the answer is."""
    data = bytearray(message)
    for what, place, value in changes:
        at = 4 + place * max(len(data) - 8, 0) // 1000
        word = at & ~3
        if what == "bit":
            data[at : at + 1] = bytes(one ^ 1 << value % 8 for one in data[at : at + 1])
        elif what == "byte":
            data[at : at + 1] = bytes([value & 0xFF])
        elif what == "word":
            data[word : word + 4] = value.to_bytes(4, "big")
        elif what == "insert":
            data[word:word] = value.to_bytes(4, "big")
        elif what == "drop":
            del data[word : word + 4]
        else:
            del data[max(word, 8) :]
    return bytes(data)


def judge(reply: bytes, xid: int) -> None:
    """An answer as the RFCs have it, to this call; what the server did not foresee is none."""
    decoder = Decoder(reply)
    answer = decode_reply(decoder)
    assert answer.xid == xid
    if isinstance(answer, Denied):
        return
    assert isinstance(answer, Accepted)
    assert answer.status != AcceptStatus.SYSTEM_ERR
    if answer.status == AcceptStatus.SUCCESS and decoder.left:  # NULL has no result
        assert Status(decoder.u32()) != Status.SERVERFAULT


@pytest.fixture
def attacker(siege: Siege) -> Iterator[Intruder]:
    work = siege.export / "work"
    work.mkdir(exist_ok=True)
    work.chmod(0o777)
    with Intruder(siege) as made:
        restart(made)
        yield made
        restart(made)
        made.leave()
    siege.file.write_bytes(CONTENT)
    siege.file.chmod(0o666)


EACH = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])


def resume(one: Intruder) -> None:
    """The next request is possible, in this session or, if that was destroyed, in another."""
    after = Status.DELAY
    while after == Status.DELAY:  # it is still being executed
        after = one.send(one.sequence(is_again=True)).status
    assert after in AFTER
    if after == Status.BADSESSION or one.read(0, 1).status != Status.OK:
        restart(one)


def restart(one: Intruder) -> None:
    """As a client does: what it was before goes."""
    one.number = 0
    one.verifier = os.urandom(8)
    one.enter(b"mutant")
    one.stateid = bytes(4) + one.stateid[4:]  # in any version


def test_unchanged(attacker: Intruder) -> None:
    """They are real calls, of which the accelerator takes some."""
    for name, ops in operations(attacker).items():
        status = attacker.move(*ops).status
        assert status in (Status.OK, Status.EXIST, Status.NOENT), name


@EACH
@given(which=st.integers(0, 99), changes=mutations(), chunk=st.booleans())
def test_over_rdma(
    attacker: Intruder, which: int, changes: list[tuple[str, int, int]], chunk: bool
) -> None:
    """chunk: READ's data is to be placed, WRITE's to be fetched, and long replies have room."""
    message = mutated(choose(attacker, which), changes)
    xid = int.from_bytes(message[:4], "big")
    peer = attacker.peer
    fields: dict[str, Any] = {}
    if chunk:
        fields["writes"] = ((peer.segment(0, 4096),),)
        fields["reply"] = (peer.segment(8192, 16384),)
        at = message.find(CONTENT[:64])
        if at > 0 and at % 4 == 0:
            peer.memory[1 << 18 : (1 << 18) + 64] = CONTENT[:64]
            fields["reads"] = (ReadChunk(at, (peer.segment(1 << 18, 64),)),)
            message = message[:at] + message[at + 64 :]
    peer.call(message[4:], xid=xid, **fields)
    resume(attacker)
    if xid not in peer.replies:
        peer.take()
    data = peer.replies.pop(xid, None)
    if data is None:
        return  # it is no call any more
    header, end = decode_header(data)
    if isinstance(header, Header):
        judge(data[end:] or bytes(peer.memory[8192:24576]), xid)


@EACH
@given(which=st.integers(0, 99), changes=mutations())
def test_over_tcp(
    siege: Siege, attacker: Intruder, which: int, changes: list[tuple[str, int, int]]
) -> None:
    message = mutated(choose(attacker, which), changes)
    xid = int.from_bytes(message[:4], "big")
    null = encode_call(Call(0xFFFF0000, PROGRAM, VERSION, 0, STRANGER))
    with Stream(siege) as stream:
        stream.send(message)
        stream.send(null)
        replies = [stream.receive()]
        if int.from_bytes(replies[0][:4], "big") == xid:
            judge(replies[0], xid)
            replies.append(stream.receive())
        assert int.from_bytes(replies[-1][:4], "big") == 0xFFFF0000
        resume(attacker)


def choose(one: Intruder, which: int) -> bytes:
    all_of_them = list(operations(one).values())
    return one.message(*all_of_them[which % len(all_of_them)])
