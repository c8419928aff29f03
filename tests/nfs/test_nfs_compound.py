# SPDX-License-Identifier: BSD-2-Clause
"""COMPOUND and SEQUENCE: which operation may be where, once and again, and how much (RFC 8881)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import (
    GETFH,
    PUTROOTFH,
    Channel,
    Export,
    Peer,
    compound,
    create_session,
    destroy_clientid,
    exchange_id,
    exported,
    op,
    reclaim_complete,
    sequence,
)
from hypothesis import given
from hypothesis import strategies as st

from livedma.nfs.numbers import Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import OPERATIONS, Operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.rpc.message import Accepted, AcceptStatus, decode_reply
from livedma.rpc.xdr import Decoder, Encoder


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    with exported(tmp_path) as export:
        yield export


@pytest.fixture
def peer(export: Export) -> Peer:
    return Peer(export.program)


@pytest.fixture
def session(peer: Peer) -> bytes:
    return peer.session()[1]


def test_null(peer: Peer) -> None:
    assert decode_reply(Decoder(peer.rpc(b"", procedure=0))) == Accepted(1)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_other_versions_of_nfs(peer: Peer, version: int) -> None:
    reply = decode_reply(Decoder(peer.rpc(b"", 0, version)))
    assert reply == Accepted(1, AcceptStatus.PROG_MISMATCH, versions=(4, 4))


def test_nothing_is_ok_and_the_tag_comes_back(peer: Peer) -> None:
    result = peer.send(tag=b"t\xc3\xa4g")
    assert (result.status, result.tag, result.ops) == (Status.OK, b"t\xc3\xa4g", 0)


def test_a_tag_is_text(peer: Peer) -> None:
    result = peer.send(exchange_id(), tag=b"\xc0\xaf")
    assert (result.status, result.ops) == (Status.INVAL, 0)


@pytest.mark.parametrize("minor", [0, 3, 50])
def test_minor_versions(peer: Peer, minor: int) -> None:
    result = peer.send(op(77777), minor=minor)
    assert (result.status, result.ops) == (Status.MINOR_VERS_MISMATCH, 0)
    assert peer.status(exchange_id(), minor=1) == Status.OK
    assert peer.status(exchange_id(), minor=2) == Status.OK


@pytest.mark.parametrize(
    "arguments", [b"", b"\0\0\0\1", compound()[:-4], compound(count=1), compound(count=0xFFFFFFFF)]
)
def test_what_is_no_compound(peer: Peer, arguments: bytes) -> None:
    reply = decode_reply(Decoder(peer.rpc(arguments)))
    assert reply == Accepted(1, AcceptStatus.GARBAGE_ARGS)


@pytest.mark.parametrize("number", [0, 1, 2, 76, 10044, 0xFFFFFFFF])
def test_unknown_operations(peer: Peer, session: bytes, number: int) -> None:
    for ops in ([op(number)], [sequence(session), op(number)]):
        result = peer.send(*ops, minor=2)
        assert (result.status, result.last_op) == (Status.OP_ILLEGAL, Op.ILLEGAL)
        assert result.ops == len(ops)


@pytest.mark.parametrize("number", [Op.ALLOCATE, Op.SEEK, Op.CLONE, Op.REMOVEXATTR])
def test_what_minor_version_1_does_not_know(peer: Peer, session: bytes, number: Op) -> None:
    result = peer.send(sequence(session), op(number), minor=1)
    assert (result.status, result.last_op) == (Status.OP_ILLEGAL, Op.ILLEGAL)


@pytest.mark.parametrize(
    "number",
    [Op.SETCLIENTID, Op.RENEW, Op.OPEN_CONFIRM, Op.RELEASE_LOCKOWNER, Op.LAYOUTGET, Op.SET_SSV],
)
def test_what_is_not_supported(peer: Peer, session: bytes, number: Op) -> None:
    result = peer.send(sequence(session), op(number))
    assert (result.status, result.last_op, result.ops) == (Status.NOTSUPP, number, 2)


def test_what_is_not_supported_of_4_2(peer: Peer, session: bytes) -> None:
    for number, slot in ((Op.CLONE, 0), (Op.WRITE_SAME, 1), (Op.OFFLOAD_STATUS, 2)):
        result = peer.send(sequence(session, slot=slot), op(number), minor=2)
        assert (result.status, result.last_op) == (Status.NOTSUPP, number)


def test_where_operations_may_be(peer: Peer, session: bytes) -> None:
    assert peer.status(PUTROOTFH) == Status.OP_NOT_IN_SESSION
    assert peer.status(exchange_id(), PUTROOTFH) == Status.NOT_ONLY_OP
    assert peer.status(create_session(1), PUTROOTFH) == Status.NOT_ONLY_OP
    assert peer.status(destroy_clientid(0), reclaim_complete()) == Status.NOT_ONLY_OP
    assert peer.status(sequence(session), sequence(session, 2)) == Status.SEQUENCE_POS
    assert peer.status(sequence(session, 2), PUTROOTFH, sequence(session)) == Status.SEQUENCE_POS
    assert peer.status(sequence(session, 3), exchange_id()) == Status.OK


def test_handles(peer: Peer, session: bytes) -> None:
    assert peer.status(sequence(session), GETFH) == Status.NOFILEHANDLE
    assert peer.status(sequence(session, 2), op(Op.SAVEFH)) == Status.NOFILEHANDLE
    assert peer.status(sequence(session, 3), op(Op.RESTOREFH)) == Status.NOFILEHANDLE
    root = peer.send(sequence(session, 4), PUTROOTFH, GETFH).last.opaque()
    public = peer.send(sequence(session, 5), op(Op.PUTPUBFH), GETFH).last.opaque()
    assert root == public
    putfh = op(Op.PUTFH, lambda out: out.opaque(root))
    saved = peer.send(sequence(session, 6), putfh, op(Op.SAVEFH), op(Op.RESTOREFH), GETFH)
    assert saved.last.opaque() == root
    for wrong in (b"", bytes(64), root[:-1] + bytes([root[-1] ^ 1])):
        forged = op(Op.PUTFH, lambda out, wrong=wrong: out.opaque(wrong))  # type: ignore[misc]
        slot = len(wrong) % 7 + 1
        assert peer.status(sequence(session, slot=slot), forged) == Status.BADHANDLE
    long = op(Op.PUTFH, lambda out: out.opaque(bytes(129)))
    assert peer.status(sequence(session, 7), long) == Status.BADXDR


def test_security_is_told_and_the_handle_is_gone(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    (export.path / "file").touch()
    by_name = op(Op.SECINFO, lambda out: out.opaque(b"file"))
    result = peer.send(sequence(session), PUTROOTFH, by_name)
    assert [result.last.u32() for _ in range(3)] == [2, 1, 0]
    assert peer.status(sequence(session, 2), PUTROOTFH, by_name, GETFH) == Status.NOFILEHANDLE
    missing = op(Op.SECINFO, lambda out: out.opaque(b"missing"))
    assert peer.status(sequence(session, 3), PUTROOTFH, missing) == Status.NOENT
    current, parent, wrong = (
        op(Op.SECINFO_NO_NAME, lambda out, style=style: out.u32(style))  # type: ignore[misc]
        for style in range(3)
    )
    assert peer.status(sequence(session, 4), PUTROOTFH, current) == Status.OK
    assert peer.status(sequence(session, 5), PUTROOTFH, parent) == Status.NOENT
    assert peer.status(sequence(session, 6), PUTROOTFH, wrong) == Status.BADXDR


def test_sequences_of_a_slot(peer: Peer, session: bytes) -> None:
    assert peer.status(sequence(b"Bad Session Id\0\0")) == Status.BADSESSION
    assert peer.status(sequence(session, slot=8)) == Status.BADSLOT
    assert peer.status(sequence(session, 2)) == Status.SEQ_MISORDERED
    assert peer.status(sequence(session, 1)) == Status.OK
    assert peer.status(sequence(session, 3)) == Status.SEQ_MISORDERED
    assert peer.status(sequence(session, 0)) == Status.SEQ_MISORDERED
    assert peer.status(sequence(session, 2)) == Status.OK


def test_a_short_sequence_is_no_xdr(peer: Peer, session: bytes) -> None:
    result = peer.send(sequence(session)[:-4])
    assert (result.status, result.last_op) == (Status.BADXDR, Op.SEQUENCE)


def test_what_ends_in_the_middle_has_done_what_came_before(peer: Peer, session: bytes) -> None:
    result = peer.send(sequence(session), PUTROOTFH, count=3)
    assert (result.status, result.ops, result.last_op) == (Status.BADXDR, 3, Op.ILLEGAL)


def counting(served: list[int]) -> Operation:
    """Does something that must not be done twice, and has a long result."""

    def serve(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
        served.append(args.u32())
        out.raw(bytes(1024))

    return Operation(serve)


@pytest.fixture
def done(export: Export, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    served: list[int] = []
    monkeypatch.setitem(OPERATIONS, Op.WANT_DELEGATION, counting(served))
    return served


def once(number: int = 0) -> bytes:
    return op(Op.WANT_DELEGATION, lambda out: out.u32(number))


def test_a_repeated_request_is_not_executed_again(
    peer: Peer, session: bytes, done: list[int]
) -> None:
    first = peer.send(sequence(session, cache=True), once(5))
    again = peer.send(sequence(session, cache=True), once(5))
    assert first.status == Status.OK and first.raw == again.raw
    assert done == [5]


def test_a_failure_is_repeated_as_well(peer: Peer, session: bytes) -> None:
    first = peer.send(sequence(session, cache=True), GETFH)
    assert first.status == Status.NOFILEHANDLE
    assert peer.send(sequence(session, cache=True), GETFH).raw == first.raw


def test_a_long_result_is_kept_only_if_asked_for(
    peer: Peer, session: bytes, done: list[int]
) -> None:
    assert peer.status(sequence(session), once()) == Status.OK
    again = peer.send(sequence(session), once())
    assert (again.status, again.last_op) == (Status.RETRY_UNCACHED_REP, Op.WANT_DELEGATION)
    assert again.ops == 2 and done == [0]


def test_another_request_with_an_old_sequence_is_no_repetition(
    export: Export, peer: Peer, session: bytes, done: list[int]
) -> None:
    assert peer.status(sequence(session, cache=True), once(1)) == Status.OK
    assert peer.status(sequence(session, cache=True), once(2)) == Status.SEQ_FALSE_RETRY
    assert done == [1]


def test_a_failing_server_frees_the_slot(
    peer: Peer, session: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
        out.u32(1, 2, 3)
        raise RuntimeError

    monkeypatch.setitem(OPERATIONS, Op.WANT_DELEGATION, Operation(broken))
    result = peer.send(sequence(session), once())
    assert (result.status, result.ops) == (Status.SERVERFAULT, 2)
    assert result.last.left == 0
    assert "WANT_DELEGATION failed" in caplog.text
    assert peer.status(sequence(session, 2)) == Status.OK


def limited(peer: Peer, **limits: int) -> bytes:
    return peer.session(fore=Channel(**limits))[1]  # type: ignore[arg-type]


def test_requests_have_a_size(peer: Peer) -> None:
    session = limited(peer, request=512)
    long = op(Op.LOOKUP, lambda out: out.opaque(bytes(500)))
    result = peer.send(sequence(session), PUTROOTFH, long)
    assert (result.status, result.last_op) == (Status.REQ_TOO_BIG, Op.SEQUENCE)
    assert peer.status(sequence(session), PUTROOTFH) == Status.OK


def test_requests_have_few_operations(peer: Peer) -> None:
    session = limited(peer, operations=4)
    result = peer.send(sequence(session), *[PUTROOTFH] * 4)
    assert (result.status, result.last_op) == (Status.TOO_MANY_OPS, Op.SEQUENCE)
    assert peer.status(sequence(session), *[PUTROOTFH] * 3) == Status.OK


def test_no_reply_is_longer_than_agreed(peer: Peer) -> None:
    done = set()
    for response in range(80, 600, 4):
        session = limited(peer, response=response)
        result = peer.send(sequence(session), PUTROOTFH, *[GETFH] * 8)
        assert len(result.raw) + 24 <= response
        assert result.status in (Status.REP_TOO_BIG, Status.OK)
        done.add((result.status, result.ops))
    assert {(Status.REP_TOO_BIG, n) for n in range(1, 11)} | {(Status.OK, 10)} == done


def test_what_is_too_long_to_keep_is_not_executed(peer: Peer, done: list[int]) -> None:
    session = limited(peer, cached=150)
    result = peer.send(sequence(session, cache=True), once())
    assert (result.status, result.ops) == (Status.REP_TOO_BIG_TO_CACHE, 2)
    assert done == []
    assert peer.status(sequence(session, 2), once()) == Status.OK


def test_a_reply_that_cannot_be_kept_at_all(peer: Peer) -> None:
    session = limited(peer, cached=10)
    result = peer.send(sequence(session, cache=True))
    assert (result.status, result.last_op) == (Status.REP_TOO_BIG_TO_CACHE, Op.SEQUENCE)
    assert peer.status(sequence(session)) == Status.OK


def test_a_read_only_export_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with exported(tmp_path, Config(read_only=True)) as export:
        peer = Peer(export.program)
        served: list[int] = []
        changing = Operation(counting(served).serve, changes=True)
        monkeypatch.setitem(OPERATIONS, Op.WANT_DELEGATION, changing)
        _, session = peer.session()
        assert peer.status(sequence(session), once()) == Status.ROFS
        assert served == []


def test_setting_a_handle_forgets_the_current_stateid(
    peer: Peer, session: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from livedma.nfs.stateid import Stateid

    seen: list[Stateid | None] = []

    def note(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
        seen.append(ctx.current_stateid)
        ctx.current_stateid = Stateid(1, b"o" * 12)

    monkeypatch.setitem(OPERATIONS, Op.WANT_DELEGATION, Operation(note))
    want = op(Op.WANT_DELEGATION)
    save, restore = op(Op.SAVEFH), op(Op.RESTOREFH)
    ops = [PUTROOTFH, want, want, save, PUTROOTFH, want, PUTROOTFH, restore, want]
    assert peer.status(sequence(session), *ops) == Status.OK
    state = Stateid(1, b"o" * 12)
    assert seen == [None, state, None, state]


words = st.one_of(
    st.integers(0, 80),
    st.sampled_from([*map(int, Op), 0xFFFFFFFF, 0x7FFFFFFF, 1 << 20]),
    st.integers(0, 0xFFFFFFFF),
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with exported(tmp_path_factory.mktemp("garbage")) as export:
        yield Peer(export.program)


@given(items=st.lists(words, max_size=60), count=st.integers(0, 20), minor=st.sampled_from([1, 2]))
def test_garbage_in_a_session(shared: Peer, items: list[int], count: int, minor: int) -> None:
    """Whatever follows SEQUENCE, a reply comes that can be read, and the session goes on."""
    _, session = shared.session()
    out = Encoder()
    out.u32(*items)
    arguments = compound(sequence(session) + bytes(out), minor=minor, count=count + 1)
    decoder = Decoder(shared.rpc(arguments))
    reply = decode_reply(decoder)
    assert isinstance(reply, Accepted) and reply.status == AcceptStatus.SUCCESS
    status = Status(decoder.u32())
    assert status != Status.SERVERFAULT
    assert decoder.opaque() == b""
    assert decoder.u32() <= count + 1
    number = 1 if status == Status.TOO_MANY_OPS else 2
    assert shared.status(sequence(session, number)) == Status.OK


@given(st.binary(max_size=256))
def test_garbage_outside(shared: Peer, garbage: bytes) -> None:
    for arguments in (garbage, compound()[:-4] + garbage, compound(count=3) + garbage):
        aligned = arguments + bytes(-len(arguments) % 4)
        reply = decode_reply(Decoder(shared.rpc(aligned)))
        assert isinstance(reply, Accepted)
        assert reply.status in (AcceptStatus.SUCCESS, AcceptStatus.GARBAGE_ARGS)
