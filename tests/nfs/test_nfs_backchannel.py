# SPDX-License-Identifier: BSD-2-Clause
"""Calling clients back: by which connections, as whom, and what a client's answers may do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from calling import Peer, Wire, bind, create_session, destroy_session, op, sequence
from delegating import (
    BACK_CHANNEL,
    WANT_READ,
    BackPeer,
    Called,
    Delegating,
    answer,
    delegating,
    until,
)
from hypothesis import given
from hypothesis import strategies as st
from open_calls import by_name

from livedma.nfs.numbers import CallbackOp, Op, Status
from livedma.nfs.server.state.backchannel import (
    BackChannel,
    CallbackSecurity,
    Outcome,
    Request,
)
from livedma.nfs.server.state.callbacks import ANSWER_S
from livedma.nfs.server.state.shares import READ, WRITE
from livedma.nfs.stateid import Stateid
from livedma.rpc.message import (
    AUTH_NONE,
    Accepted,
    AcceptStatus,
    AuthSys,
    Call,
    Denied,
    RejectStatus,
    decode_call,
    encode_reply,
)
from livedma.rpc.xdr import Decoder, Encoder

PATH_DOWN, PATH_DOWN_SESSION = 0x1, 0x200
FORE, BACK, FORE_OR_BOTH, BACK_OR_BOTH = 1, 2, 3, 7


def security(*flavors: AuthSys | int, program: int = 0x40001234) -> bytes:
    """csa_cb_program and csa_sec_parms; 6 is RPCSEC_GSS."""
    out = Encoder()
    out.u32(program, len(flavors))
    for one in flavors:
        if isinstance(one, AuthSys):
            out.u32(1, one.stamp)
            out.opaque(one.machine)
            out.u32(one.uid, one.gid)
            out.array(one.gids, Encoder.u32)
        elif one == 6:
            out.u32(6, 1)
            out.opaque(b"handle")
            out.opaque(b"handle")
        else:
            out.u32(one)
    return bytes(out)


SOMEBODY = AuthSys(13, b"fake name", 17, 19, (23,))
ELSE = AuthSys(13, b"other name", 29, 31)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Delegating]:
    with delegating(tmp_path) as ret:
        for name in "abc":
            ret.file(name)
        yield ret


@pytest.fixture
def hers(serving: Delegating) -> Iterator[BackPeer]:
    with BackPeer(serving) as peer:
        yield peer


@pytest.fixture
def his(serving: Delegating) -> Iterator[BackPeer]:
    with BackPeer(serving) as peer:
        peer.join(b"him")
        yield peer


def recalled(hers: BackPeer, his: BackPeer, name: str = "a") -> Stateid:
    """Her delegation, which he has made the server recall."""
    stateid = hers.delegated(name)
    assert his.try_open(by_name(name.encode()), WRITE).status == Status.DELAY
    return stateid


class TestBinding:
    def test_who_asks_for_it_by_creating_a_session(self, hers: BackPeer) -> None:
        assert hers.introduce(b"her", BACK_CHANNEL) == BACK_CHANNEL
        assert hers.introduce(b"her too", 0) == 0

    def test_not_where_nobody_can_be_called(self, serving: Delegating) -> None:
        """As over RDMA: its connections cannot call."""
        peer = Peer(serving.program, Wire(kind="rdma"))
        number, at, _ = peer.exchange(b"her")
        result = peer.send(create_session(number, at, flags=BACK_CHANNEL))
        session = result.last.fixed(16)
        assert (result.last.u32(), result.last.u32()) == (at, 0)
        assert peer.status(bind(session, BACK)) == Status.INVAL
        for wanted in (FORE_OR_BOTH, BACK_OR_BOTH):
            result = peer.send(bind(session, wanted))
            result.last.skip(16)
            assert result.last.u32() == FORE

    def test_not_by_gss_alone(self, hers: BackPeer) -> None:
        assert hers.introduce(b"her", BACK_CHANNEL, security(6)) == 0
        assert hers.status(bind(hers.session_id, BACK)) == Status.INVAL

    @pytest.mark.parametrize(
        ("wanted", "bound"), [(FORE, 1), (BACK, 2), (FORE_OR_BOTH, 3), (BACK_OR_BOTH, 3)]
    )
    def test_binding_another(
        self, serving: Delegating, hers: BackPeer, his: BackPeer, wanted: int, bound: int
    ) -> None:
        hers.join(b"her", flags=0)
        with BackPeer(serving) as more:
            result = more.send(bind(hers.session_id, wanted))
            result.last.skip(16)
            assert (result.status, result.last.u32()) == (Status.OK, bound)
            if bound == 1:
                assert hers.open("a", READ | WANT_READ).why == 2
                return
            stateid = recalled(hers, his)
            assert more.answered().stateid == stateid
            assert not hers.calls

    @pytest.mark.parametrize("number", [1, 2])
    def test_the_minor_version_is_the_sessions(
        self, hers: BackPeer, his: BackPeer, number: int
    ) -> None:
        client, at, _ = hers.exchange(b"her")
        made = hers.send(create_session(client, at, flags=BACK_CHANNEL), minor=number)
        hers.session_id = made.last.fixed(16)
        hers.do(op(Op.RECLAIM_COMPLETE) + bytes(4))
        recalled(hers, his)
        assert hers.called().minor == number


class TestCredentials:
    @pytest.mark.parametrize(
        ("offered", "used"),
        [
            ((SOMEBODY,), SOMEBODY),
            ((0,), AUTH_NONE),
            ((6, SOMEBODY), SOMEBODY),
            ((0, SOMEBODY), AUTH_NONE),
        ],
    )
    def test_as_the_session_was_made(
        self, hers: BackPeer, his: BackPeer, offered: tuple[AuthSys | int], used: object
    ) -> None:
        hers.join(b"her", security=security(*offered))
        recalled(hers, his)
        called = hers.called()
        assert called.header.credential == used
        assert called.header.program == 0x40001234

    def test_changed_later(self, hers: BackPeer, his: BackPeer) -> None:
        hers.join(b"her", security=security(SOMEBODY))
        changed = op(Op.BACKCHANNEL_CTL) + security(ELSE, program=0x40005678)
        assert hers.do(changed).status == Status.OK
        assert hers.do(op(Op.BACKCHANNEL_CTL) + security(6)).status == Status.NOENT
        recalled(hers, his)
        called = hers.called()
        assert called.header.credential == ELSE
        assert called.header.program == 0x40005678


def broken(called: Called) -> dict[str, bytes]:
    """Answers after which the client is not called any more."""
    xid = called.header.xid
    return {
        "denied": encode_reply(Denied(xid, RejectStatus.AUTH_ERROR, auth_status=1)),
        "not understood": encode_reply(Accepted(xid, AcceptStatus.GARBAGE_ARGS)),
        "cut short": answer(called)[:-6],
        "nothing": encode_reply(Accepted(xid)),
        "no operations": encode_reply(Accepted(xid), bytes(12)),
        "no such session": answer(called, slot=Status.BADSESSION),
        "out of order": answer(called, slot=Status.SEQ_MISORDERED),
        "another session": answer(called, session=b"x" * 16),
        "another sequence": answer(called, number=called.sequence + 1),
    }


BROKEN = list(broken(Called(Call(1, 1, 1, 1), bytes(16), 1, Stateid(1, bytes(12)), b"", 1)))


class TestAnswers:
    @pytest.mark.parametrize("how", BROKEN)
    def test_after_which_nobody_is_called(
        self, serving: Delegating, hers: BackPeer, his: BackPeer, how: str
    ) -> None:
        hers.join(b"her")
        stateid = recalled(hers, his)
        called = hers.called()
        hers.tell(broken(called)[how])
        until(lambda: hers.flags() == PATH_DOWN | PATH_DOWN_SESSION)
        assert hers.open("b", READ | WANT_READ).why == 2
        serving.wait(1)
        assert not hers.calls
        # It goes on when the client has bound the connection anew, where it has ended.
        assert hers.status(bind(hers.session_id, BACK_OR_BOTH)) == Status.OK
        assert hers.flags() == 0
        again = hers.answered()
        assert (again.sequence, again.stateid) == (called.sequence, stateid)
        serving.wait(1)
        once_more = hers.answered()
        assert (once_more.sequence, once_more.stateid) == (called.sequence + 1, stateid)
        assert hers.give_back("a", stateid) == Status.OK

    @pytest.mark.parametrize("status", [Status.DELAY, Status.BAD_STATEID, Status.BADHANDLE, 4711])
    def test_not_now(self, serving: Delegating, hers: BackPeer, his: BackPeer, status: int) -> None:
        """Or the client has not yet heard of its delegation: it is asked again."""
        hers.join(b"her")
        stateid = recalled(hers, his)
        for number in (1, 2, 3):
            called = hers.answered(recall=status)
            assert (called.sequence, called.stateid) == (number, stateid)
            assert hers.flags() == 0
            until(lambda: not serving.server.callbacks._sent)
            serving.wait(1)
        assert hers.answered().sequence == 4
        until(lambda: not serving.server.callbacks._sent)
        serving.wait(1)
        assert hers.flags() == 0 and not hers.calls

    def test_a_slot_that_is_busy(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        hers.join(b"her")
        recalled(hers, his)
        for _ in range(2):
            assert hers.answered(slot=Status.DELAY).sequence == 1
            until(lambda: not serving.server.callbacks._sent)
            serving.wait(1)
        assert hers.answered().sequence == 1

    def test_one_at_a_time(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        hers.join(b"her")
        stateids = [recalled(hers, his, name) for name in "abc"]
        for number, stateid in enumerate(stateids, 1):
            called = hers.called()
            assert (called.sequence, called.stateid) == (number, stateid)
            assert hers.flags() == 0 and not hers.calls
            hers.tell(answer(called))
        until(lambda: not serving.server.callbacks._sent)

    def test_that_nobody_has_asked_for(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        callbacks = serving.server.callbacks
        hers.join(b"her")
        stateid = recalled(hers, his)
        called = hers.called()
        strange = dataclasses.replace(called.header, xid=called.header.xid ^ 1)
        hers.tell(answer(dataclasses.replace(called, header=strange)))
        his.tell(answer(called))  # from one that was not called
        his.tell(b"\0\0\0\0\0\0\0\1")
        until(lambda: callbacks.strangers == 3)
        assert hers.flags() == his.flags() == 0
        hers.tell(answer(called))
        hers.tell(answer(called))  # once is enough
        until(lambda: callbacks.strangers == 4)
        assert hers.give_back("a", stateid) == Status.OK

    def test_that_does_not_come(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        hers.join(b"her")
        recalled(hers, his)
        called = hers.called()
        serving.wait(ANSWER_S - 1)
        assert hers.flags() == 0
        serving.wait(1)
        assert hers.flags() == PATH_DOWN | PATH_DOWN_SESSION
        assert his.flags() == 0
        serving.wait(1)
        assert not hers.calls  # A call is not repeated by its own connection.
        hers.tell(answer(called))  # It was only late.
        until(lambda: hers.flags() == 0)
        serving.wait(1)
        assert hers.answered().sequence == 2

    def test_of_who_is_never_heard_of_again(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        hers.join(b"her")
        stateid = recalled(hers, his)
        for _ in range(9):
            serving.wait(10)
            hers.do()
            his.do()
        assert his.try_open(by_name(b"a"), WRITE).status == Status.OK
        assert hers.test(stateid) == Status.DELEG_REVOKED


class TestConnections:
    def test_one_is_lost_and_another_is_used(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        hers.join(b"her")
        with ExitStack() as stack:
            more = stack.enter_context(BackPeer(serving))
            assert more.status(bind(hers.session_id, BACK_OR_BOTH)) == Status.OK
            stateid = recalled(hers, his)
            lost = more.called()
        called = hers.answered()
        assert (called.sequence, called.stateid) == (lost.sequence, stateid)
        assert hers.flags() == 0

    def test_all_are_lost(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        hers.join(b"her")
        stateid = recalled(hers, his)
        lost = hers.called()
        hers.sock.close()
        with BackPeer(serving) as again:
            again.session_id = hers.session_id
            until(lambda: not serving.server.callbacks._sent)
            assert _flags(again) == PATH_DOWN | PATH_DOWN_SESSION
            assert again.status(bind(hers.session_id, BACK_OR_BOTH)) == Status.OK
            called = again.answered()
            assert (called.sequence, called.stateid) == (lost.sequence, stateid)

    def test_another_session_of_the_client(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        hers.join(b"her")
        with BackPeer(serving) as more:
            _, number, _ = more.exchange(b"her")
            more.session_id = more.another(hers.client, number, flags=BACK_CHANNEL)
            stateid = recalled(hers, his)
            hers.called()
            assert hers.status(destroy_session(hers.session_id)) == Status.OK
            serving.wait(1)
            called = more.answered()
            assert (called.session, called.stateid) == (more.session_id, stateid)


def _flags(peer: BackPeer) -> int:
    """By a slot that was not used yet."""
    result = peer.send(sequence(peer.session_id, 1, slot=7, highest=7))
    assert result.status == Status.OK
    result.last.skip(32)
    return result.last.u32()


class TestAnyReply:
    """No bytes that a client may send break anything but its own back channel."""

    @staticmethod
    def channel() -> BackChannel:
        ret = BackChannel(bytes(16), 1, CallbackSecurity(0x40000000, AUTH_NONE))
        ret.current = Request(CallbackOp.RECALL, b"", lambda status: None)
        return ret

    @given(st.binary(max_size=200))
    def test_any_bytes(self, message: bytes) -> None:
        self.take(self.channel(), message)

    @given(st.data())
    def test_a_good_one_with_some_bytes_changed(self, data: st.DataObject) -> None:
        channel = self.channel()
        header = decode_call(Decoder(channel.message(7)))
        message = bytearray(answer(Called(header, bytes(16), 1, Stateid(1, bytes(12)), b"", 1)))
        assert channel.take(bytes(message)) == (Outcome.USED, Status.OK)
        channel = self.channel()
        for _ in range(data.draw(st.integers(1, 4))):
            message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
        self.take(channel, bytes(message[: data.draw(st.integers(0, len(message)))]))

    @staticmethod
    def take(channel: BackChannel, message: bytes) -> None:
        before = channel.message(7)
        outcome, status = channel.take(message)
        assert (channel.message(7) == before) == (outcome is not Outcome.USED)
        assert status is None or outcome is Outcome.USED
