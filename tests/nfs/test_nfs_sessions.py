# SPDX-License-Identifier: BSD-2-Clause
"""Sessions: made, bound, resized, refused, destroyed; leases (RFC 8881 18.34 to 18.37)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import (
    OTHER,
    PUTROOTFH,
    Channel,
    Export,
    Peer,
    Wire,
    bind,
    create_session,
    destroy_clientid,
    destroy_session,
    exchange_id,
    exported,
    op,
    reclaim_complete,
    sequence,
)

from livedma.nfs.numbers import Op, Status
from livedma.nfs.server import parts as server_module
from livedma.nfs.server.config import Config
from livedma.nfs.server.state.channel import ChannelAttributes
from livedma.nfs.server.state.sessions import Session


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    with exported(tmp_path) as export:
        yield export


@pytest.fixture
def peer(export: Export) -> Peer:
    return Peer(export.program)


def channels(peer: Peer, **options: object) -> tuple[int, ChannelAttributes, ChannelAttributes]:
    number, first, _ = peer.exchange()
    result = peer.send(create_session(number, first, **options))  # type: ignore[arg-type]
    assert result.status == Status.OK
    result.last.fixed(16)
    assert result.last.u32() == first
    flags = result.last.u32()
    decode = ChannelAttributes.decode
    return flags, decode(result.last), decode(result.last)


def test_a_repeated_request_has_the_same_result(peer: Peer) -> None:
    number, first, _ = peer.exchange()
    once = peer.send(create_session(number, first))
    again = peer.send(create_session(number, first))
    assert once.raw == again.raw
    assert peer.status(sequence(once.last.fixed(16))) == Status.OK


def test_a_repetition_may_come_within_a_session(peer: Peer) -> None:
    number, session = peer.session()
    inside = peer.send(sequence(session), create_session(number, 2))
    outside = peer.send(create_session(number, 2))
    assert outside.raw[12:].endswith(inside.raw[-80:])
    assert inside.last.fixed(16) == outside.last.fixed(16)


def test_sequences_count_up(peer: Peer) -> None:
    number, first, _ = peer.exchange()
    # Nothing was created yet: its result is contrived.
    assert peer.status(create_session(number, first - 1)) == Status.SEQ_MISORDERED
    assert peer.status(create_session(number, first + 1)) == Status.SEQ_MISORDERED
    assert peer.status(create_session(number, first)) == Status.OK
    assert peer.status(create_session(number, first + 2)) == Status.SEQ_MISORDERED
    assert peer.status(create_session(number, first - 1)) == Status.SEQ_MISORDERED
    assert peer.status(create_session(number, first + 1)) == Status.OK


def test_only_the_principal_confirms_and_the_refusal_is_kept(export: Export, peer: Peer) -> None:
    number, first, _ = peer.exchange()
    other = Peer(export.program, peer.wire, OTHER)
    assert other.status(create_session(number, first)) == Status.CLID_INUSE
    assert other.status(create_session(number, first)) == Status.CLID_INUSE
    peer.another(number, first + 1)
    other.another(number, first + 2)


def test_unknown_clients(peer: Peer) -> None:
    assert peer.status(create_session(0x123456789)) == Status.STALE_CLIENTID


def test_unknown_flags(peer: Peer) -> None:
    number, first, _ = peer.exchange()
    assert peer.status(create_session(number, first, flags=0x8)) == Status.INVAL
    assert peer.status(create_session(number, first)) == Status.OK


def test_no_flag_is_granted(peer: Peer) -> None:
    assert channels(peer, flags=0x7)[0] == 0


def test_what_is_asked_for_is_given_up_to_the_limits(peer: Peer) -> None:
    _, fore, back = channels(peer, fore=Channel(512, 8192, 100, 4, 8))
    assert fore == ChannelAttributes(0, 512, 8192, 100, 4, 8)
    assert back.requests == 1
    most = 0xFFFFFFFF
    _, fore, _ = channels(peer, fore=Channel(most, most, most, most, most, (5,)))
    config = Config()
    assert fore == ChannelAttributes(
        0, config.request_bytes, config.response_bytes, config.cached_bytes, 64, 64
    )


def test_the_depth_of_reads_is_negotiated_over_rdma(export: Export) -> None:
    peer = Peer(export.program, Wire(kind="rdma"))
    assert channels(peer, fore=Channel(ird=(57,)))[1].rdma_ird == (16,)
    assert channels(peer, fore=Channel(ird=(3,)))[1].rdma_ird == (3,)


def test_two_depths_are_no_depth(peer: Peer) -> None:
    number, first, _ = peer.exchange()
    fore = Channel(ird=(13, 57))
    assert peer.status(create_session(number, first, fore=fore)) == Status.BADXDR


@pytest.mark.parametrize(
    ("fore", "back"),
    [
        (Channel(request=87), Channel()),
        (Channel(response=79), Channel()),
        (Channel(operations=0), Channel()),
        (Channel(), Channel(request=10)),
        (Channel(), Channel(response=10)),
        (Channel(), Channel(operations=1)),
    ],
)
def test_what_serves_no_request_is_too_small(peer: Peer, fore: Channel, back: Channel) -> None:
    number, first, _ = peer.exchange()
    for _ in range(2):
        wrong = create_session(number, first, fore=fore, back=back)
        assert peer.status(wrong) == Status.TOOSMALL
    assert peer.status(create_session(number, first)) == Status.OK


def test_the_smallest_session_works(peer: Peer) -> None:
    number, first, _ = peer.exchange()
    least = Channel(request=2000, response=80, cached=0, operations=1, requests=0)
    session = peer.another(number, first, fore=least)
    assert peer.status(sequence(session)) == Status.OK
    assert peer.status(sequence(session, 2, slot=1)) == Status.BADSLOT


def test_a_session_is_refused_when_there_is_no_memory_for_it(export: Export, peer: Peer) -> None:
    number, session = peer.session()
    export.server.sessions.refuse(True)
    assert peer.status(create_session(number, 2)) == Status.NOSPC
    assert peer.status(sequence(session)) == Status.OK
    export.server.sessions.refuse(False)
    # The refusal was the result of that request, so the same one again has the same result.
    assert peer.status(create_session(number, 2)) == Status.NOSPC
    assert peer.status(create_session(number, 3)) == Status.OK


def test_a_new_client_is_told_at_once_that_everybody_is_refused(export: Export, peer: Peer) -> None:
    """One that has been here may come back, also when its session has ended or it starts anew."""
    number, session = peer.session(b"known")
    sessions = export.server.sessions
    sessions.refuse(True)
    assert peer.status(exchange_id(b"new")) == Status.SERVERFAULT
    assert peer.status(create_session(number, 2)) == Status.NOSPC  # a second one
    assert peer.status(destroy_session(session)) == Status.OK
    session = peer.another(number, 3)
    number, first, _ = peer.exchange(b"known", verifier=b"restart ")
    session = peer.another(number, first)
    assert peer.status(sequence(session)) == Status.OK
    sessions.refuse(False)
    assert peer.status(exchange_id(b"new")) == Status.OK


def test_a_client_that_may_reclaim_is_not_new(export: Export, peer: Peer) -> None:
    sessions = export.server.sessions
    sessions.refuse(True)
    sessions.may_reclaim = {b"was here"}.__contains__
    number, first, _ = peer.exchange(b"was here")
    peer.another(number, first)
    assert peer.status(create_session(number, first + 1)) == Status.NOSPC
    assert peer.status(exchange_id(b"was not")) == Status.SERVERFAULT


def test_sessions_are_refused_on_one_connection_alone(export: Export, peer: Peer) -> None:
    """Those on others go on; the connection that ends leaves nothing behind."""
    other = Peer(export.program)
    number, session = peer.session(b"one")
    other_number, _ = other.session(b"other")
    sessions = export.server.sessions
    assert not sessions.refuse_on(peer.wire, True)
    assert sessions.refuse_on(peer.wire, True)
    assert sessions.refuses_on(peer.wire.number)
    assert peer.status(create_session(number, 2)) == Status.NOSPC
    assert peer.status(sequence(session)) == Status.OK
    assert other.status(create_session(other_number, 2)) == Status.OK
    newcomer, first, _ = peer.exchange(b"new on it")
    assert peer.status(create_session(newcomer, first)) == Status.NOSPC
    sessions.connection_closed(peer.wire)
    assert not sessions.refuses_on(peer.wire.number)
    peer.wire.close()
    sessions.refuse_on(peer.wire, True)  # it comes too late
    assert not sessions.refuses_on(peer.wire.number)


def test_sessions_are_bounded_and_silent_clients_make_room(tmp_path: Path) -> None:
    with exported(tmp_path, Config(sessions_most=2)) as export:
        peer = Peer(export.program)
        _, silent = peer.session(b"silent")
        number, first, _ = peer.exchange(b"busy")
        busy = peer.another(number, first)
        assert peer.status(create_session(number, first + 1)) == Status.NOSPC
        export.clock.now += 91
        assert peer.status(sequence(busy)) == Status.OK
        peer.another(number, first + 2)
        assert peer.status(sequence(silent)) == Status.BADSESSION


def test_session_ids_cannot_be_guessed(peer: Peer) -> None:
    number, first = peer.session()
    ids = {first, *(peer.another(number, n) for n in range(2, 34))}
    assert len(ids) == 33
    for position in range(16):
        assert len({one[position] for one in ids}) > 8


def only_session(export: Export) -> Session:
    (session,) = export.server.sessions.all()
    return session


def targets(peer: Peer, session: bytes, number: int, slot: int, highest: int) -> tuple[int, int]:
    result = peer.send(sequence(session, number, slot, highest))
    assert result.status == Status.OK
    result.last.fixed(16)
    assert (result.last.u32(), result.last.u32()) == (number, slot)
    return result.last.u32(), result.last.u32()


def test_slots_are_raised_and_lowered_live(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    assert targets(peer, session, 1, 0, 0) == (7, 7)
    only_session(export).set_slots(16)
    assert targets(peer, session, 2, 0, 0) == (15, 15)
    assert targets(peer, session, 1, 15, 15) == (15, 15)
    only_session(export).set_slots(4)
    assert targets(peer, session, 3, 0, 15)[1] == 3
    targets(peer, session, 4, 0, 3)
    assert targets(peer, session, 5, 0, 3) == (3, 3)
    assert peer.status(sequence(session, 2, slot=15)) == Status.BADSLOT


def test_slots_have_bounds(export: Export, peer: Peer) -> None:
    peer.session()
    for slots in (0, 1025):
        with pytest.raises(ValueError):
            only_session(export).set_slots(slots)


def test_a_new_connection_from_where_the_client_is_needs_no_binding(
    export: Export, peer: Peer
) -> None:
    _, session = peer.session()
    again = Peer(export.program, Wire(peer.wire.peer))
    assert again.status(sequence(session)) == Status.OK
    assert len(only_session(export).connections) == 2


def test_a_stolen_session_id_is_not_enough(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    thief = Peer(export.program, Wire("198.51.100.7"), OTHER)
    assert thief.status(sequence(session)) == Status.CONN_NOT_BOUND_TO_SESSION
    assert thief.status(bind(session)) == Status.WRONG_CRED
    assert thief.status(destroy_session(session)) == Status.CONN_NOT_BOUND_TO_SESSION
    assert thief.status(sequence(session)) == Status.CONN_NOT_BOUND_TO_SESSION
    # The slot is as it was.
    assert peer.status(sequence(session)) == Status.OK


def test_the_client_may_bind_a_connection_from_elsewhere(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    elsewhere = Peer(export.program, Wire("198.51.100.7"))
    result = elsewhere.send(bind(session, 3))
    assert result.status == Status.OK
    assert result.last.fixed(16) == session
    assert result.last.u32() == 1 and not result.last.boolean()
    assert elsewhere.status(sequence(session)) == Status.OK


@pytest.mark.parametrize(
    ("wanted", "status"),
    [(1, Status.OK), (2, Status.INVAL), (3, Status.OK), (7, Status.OK), (4, Status.BADXDR)],
)
def test_ways_to_bind(peer: Peer, wanted: int, status: Status) -> None:
    _, session = peer.session()
    assert peer.status(bind(session, wanted)) == status


def test_binding_to_nothing_and_with_company(peer: Peer) -> None:
    _, session = peer.session()
    assert peer.status(bind(bytes(16))) == Status.BADSESSION
    assert peer.status(bind(session), PUTROOTFH) == Status.NOT_ONLY_OP
    assert peer.status(sequence(session), bind(session)) == Status.NOT_ONLY_OP


def test_a_session_outlives_its_connection(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    export.program.closed(peer.wire)
    assert only_session(export).connections == {}
    again = Peer(export.program, Wire(peer.wire.peer))
    assert again.status(sequence(session)) == Status.OK


def test_destroying_sessions(export: Export, peer: Peer) -> None:
    number, first = peer.session()
    second = peer.another(number, 2)
    gone: list[bytes] = []
    export.server.sessions.on_gone.append(lambda session: gone.append(session.id))
    stranger = Peer(export.program)
    assert stranger.status(destroy_session(second)) == Status.CONN_NOT_BOUND_TO_SESSION
    assert peer.status(destroy_session(first)) == Status.OK
    assert peer.status(destroy_session(first)) == Status.BADSESSION
    assert peer.status(sequence(first)) == Status.BADSESSION
    assert peer.status(sequence(second), destroy_session(second), PUTROOTFH) == Status.NOT_ONLY_OP
    assert peer.status(sequence(second, 2), destroy_session(second)) == Status.OK
    assert gone == [first, second]
    export.program.closed(peer.wire)


def test_destroying_clients(peer: Peer) -> None:
    number, session = peer.session()
    unconfirmed = peer.exchange(b"unconfirmed")[0]
    assert peer.status(destroy_clientid(number)) == Status.CLIENTID_BUSY
    assert peer.status(sequence(session), destroy_clientid(number)) == Status.CLIENTID_BUSY
    assert peer.status(destroy_clientid(unconfirmed)) == Status.OK
    assert peer.status(destroy_clientid(unconfirmed)) == Status.STALE_CLIENTID
    assert peer.status(destroy_session(session)) == Status.OK
    assert peer.status(destroy_clientid(number)) == Status.OK
    assert peer.status(destroy_clientid(number)) == Status.STALE_CLIENTID


def test_reclaiming_is_complete_once(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    client = only_session(export).client
    one = reclaim_complete(one_filesystem=True)
    assert peer.status(sequence(session), one) == Status.NOFILEHANDLE
    assert peer.status(sequence(session, 2), PUTROOTFH, one) == Status.OK
    assert not client.has_reclaimed
    assert peer.status(sequence(session, 3), reclaim_complete()) == Status.OK
    assert client.has_reclaimed
    assert peer.status(sequence(session, 4), reclaim_complete()) == Status.COMPLETE_ALREADY


def test_a_silent_client_without_state_goes_after_its_lease(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    export.clock.now += 89
    assert peer.status(sequence(session)) == Status.OK
    export.clock.now += 89
    export.server.tick()
    assert peer.status(sequence(session, 2)) == Status.OK
    export.clock.now += 91
    export.server.tick()
    assert peer.status(sequence(session, 3)) == Status.BADSESSION


def test_a_silent_client_with_state_is_kept_for_a_day(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    client = only_session(export).client
    export.server.clients.has_state = lambda one: one is client
    export.clock.now += 3600
    export.server.tick()
    assert client.is_courtesy
    assert peer.status(sequence(session)) == Status.OK
    assert not client.is_courtesy
    export.clock.now += 24 * 3600 + 1
    export.server.tick()
    assert peer.status(sequence(session, 2)) == Status.BADSESSION


def test_requests_that_do_not_pass_python_renew_the_lease(export: Export, peer: Peer) -> None:
    peer.session()
    session = only_session(export)
    export.clock.now += 80
    assert session.slots.begin(0, 1, 0, False) == Status.OK
    session.slots.end(0, None)
    export.server.tick()
    export.clock.now += 80
    assert not session.client.is_courtesy
    export.clock.now += 91
    assert session.client.is_courtesy


def test_facts_of_sessions(export: Export, peer: Peer) -> None:
    number, session = peer.session()
    peer.send(sequence(session))
    facts = only_session(export).facts()
    assert (facts.id, facts.client, facts.slots) == (session, number, 8)
    assert facts.connections == (peer.wire.number,)
    assert facts.counters["executed"] == 1


def test_a_callback_may_be_configured_though_none_comes(peer: Peer) -> None:
    _, session = peer.session()
    control = op(Op.BACKCHANNEL_CTL, lambda out: out.u32(0x40000000, 1, 0))
    assert peer.status(sequence(session), control) == Status.OK
    wrong = op(Op.BACKCHANNEL_CTL, lambda out: out.u32(0x40000000, 1, 77))
    assert peer.status(sequence(session, 2), wrong) == Status.BADXDR


def test_time_goes_on_after_a_tick_that_failed(
    export: Export, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = threading.Semaphore(0)

    def fail() -> None:
        ticks.release()
        raise RuntimeError

    monkeypatch.setattr(server_module, "TICK_S", 0.01)
    monkeypatch.setattr(export.server, "tick", fail)
    export.server.start()
    try:
        assert all(ticks.acquire(timeout=20) for _ in range(3))
    finally:
        export.server.stop()
    assert "a tick failed" in caplog.text


def test_a_client_is_logged_once_by_the_name_it_gives(
    export: Export, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "livedma.connections")
    number, first, _ = peer.exchange(owner=b"Linux host\n\x1b[2J")
    for sequence_number in (first, first + 1):
        assert peer.status(create_session(number, sequence_number)) == Status.OK
    assert not caplog.messages  # the server's lock was held
    export.server.tick()
    export.server.tick()
    where = f"connection {peer.wire.number}: {peer.wire.peer}"
    assert caplog.messages == [f"client    {where} calls itself 'Linux host'"]


def test_a_client_between_two_sessions_is_no_other_client(
    export: Export, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "livedma.connections")
    number, session = peer.session()
    assert peer.status(destroy_session(session)) == Status.OK
    peer.another(number, 2)
    export.server.tick()
    assert len(caplog.messages) == 1
