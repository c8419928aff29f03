# SPDX-License-Identifier: BSD-2-Clause
"""Connections that were made before the monitor: it learns them from calls and replies alone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from talk import (
    BAD_SESSION,
    CLIENT6,
    SERVER6,
    SESSION,
    Talk,
    call,
    did_read,
    did_write,
    header,
    read,
    reply,
    words,
    write,
)

from livedma.monitor import Monitor
from livedma.monitor.snapshot import Losses

pytestmark = pytest.mark.slow  # each test loads the programs anew

SLOT_AT = 16  # in a SEQUENCE, behind the session: sequence number, slot


def in_slot(message: bytes, sequence: int, slot: int = 0, session: bytes = SESSION) -> bytes:
    """The call or reply with another sequence number and slot in its SEQUENCE."""
    at = message.index(session) + SLOT_AT
    return message[:at] + words(sequence, slot) + message[at + 8 :]


def exchange(talk: Talk, xid: int, sequence: int, count: int = 4096) -> None:
    talk.call(header(xid) + in_slot(call(xid, read(count)), sequence))
    talk.reply(header(xid, granted=64) + in_slot(reply(xid, did_read(count)), sequence))


def learnt(talk: Talk) -> Talk:
    """Two exchanges tell a connection."""
    for xid in (0x701, 0x702):
        exchange(talk, xid, xid)
    return talk


def without_session(talk: Talk, xid: int) -> None:
    """NFSv3, which has none."""
    talk.call(header(xid, writes=(4096,)) + call(xid, session=None, version=3, procedure=6))
    talk.reply(header(xid, writes=(4000,)) + words(xid, 1, 0, 0, 0, 0, 0))


def test_two_exchanges_tell_a_connection(monitor: Monitor) -> None:
    talk = Talk(monitor)
    exchange(talk, 1, 1)
    assert monitor.snapshot().connections == ()
    before_s = time.time()
    exchange(talk, 2, 2)
    after_s = time.time()
    seen = monitor.snapshot()
    (connection,) = seen.connections
    assert (connection.server, connection.client) == (talk.server, talk.client)
    assert (connection.server_qpn, connection.client_qpn) == (talk.server_qpn, talk.client_qpn)
    assert connection.learnt_s is not None
    assert before_s - 1 <= connection.learnt_s <= after_s + 1
    for _ in range(3):  # it is a label of metrics
        assert monitor.snapshot().connections[0].learnt_s == connection.learnt_s
    # What told of it was before: it counts from here on.
    assert (connection.operations, seen.sessions, seen.losses) == (0, (), Losses())


@pytest.mark.parametrize("ends", [("10.1.0.1", "10.1.0.2"), (SERVER6, CLIENT6)])
@pytest.mark.parametrize("vlan", [(), (7, 8)])
def test_all_that_comes_later_counts(
    monitor: Monitor, ends: tuple[str, str], vlan: tuple[int, ...]
) -> None:
    talk = learnt(Talk(monitor, *ends, vlan=vlan))
    for xid in range(1, 50):
        exchange(talk, xid, xid, count=100)
    talk.call(header(50, reads=((200, 700),)) + in_slot(call(50, write(700)), 50))
    talk.reply(header(50) + in_slot(reply(50, did_write(700)), 50))
    seen = monitor.snapshot()
    (connection,), (session,) = seen.connections, seen.sessions
    assert (session.id, session.operations) == (SESSION.hex(), 50)
    assert (session.read_bytes, session.written_bytes) == (4900, 700)
    assert (connection.operations, connection.retransmissions) == (50, 0)
    assert (connection.credits_granted, seen.losses) == (32, Losses())


def test_calls_under_way_are_told_apart(monitor: Monitor) -> None:
    """Their replies are no losses, and no operations: nobody saw when these began."""
    talk = Talk(monitor)
    for xid in range(1, 10):
        talk.call(header(xid) + in_slot(call(xid, read()), 5, xid))
    for xid in (3, 9):  # these tell
        talk.reply(header(xid) + in_slot(reply(xid, did_read(1)), 5, xid))
    talk.call(header(20) + in_slot(call(20, read()), 6, 3))
    connection = monitor.snapshot().connections[0]
    assert (connection.operations, connection.in_flight) == (0, 1)
    for xid in (1, 2, 4, 5, 6, 7, 8):
        talk.reply(header(xid) + in_slot(reply(xid, did_read(1000)), 5, xid))
    talk.reply(header(20) + in_slot(reply(20, did_read(7)), 6, 3))
    seen = monitor.snapshot()
    assert (seen.sessions[0].operations, seen.sessions[0].read_bytes) == (1, 7)
    assert (seen.connections[0].operations, seen.connections[0].in_flight) == (1, 0)
    assert seen.losses == Losses(early=7)


def test_later_replies_to_unseen_calls_are_losses(bpf: None) -> None:
    with Monitor([], connections=2, sessions=4, patience_s=0.05) as monitor:
        talk = learnt(Talk(monitor))
        time.sleep(0.1)
        talk.reply(header(9) + reply(9, did_read(1)))
        assert monitor.snapshot().losses == Losses(replies=1)


def test_a_call_that_is_repeated_after_it_was_learnt_counts_once(monitor: Monitor) -> None:
    talk = Talk(monitor)
    first = talk.packet(True, payload=header(2) + in_slot(call(2, read()), 1, 1))
    talk.show(first)
    learnt(talk)
    for _ in range(2):
        talk.show(first)  # its reply takes long: the client asks again
    talk.reply(header(2) + in_slot(reply(2, did_read(9)), 1, 1))
    seen = monitor.snapshot()
    assert (seen.sessions[0].operations, seen.sessions[0].read_bytes) == (1, 9)
    assert seen.losses == Losses()


def test_connections_between_the_same_hosts_are_not_mixed_up(monitor: Monitor) -> None:
    """Their XIDs may even be the same ones: session, slot and sequence number tell."""
    one, two = (Talk(monitor, server_qpn=0x31 + i, client_qpn=0x41 + i) for i in range(2))
    ids = [bytes([i + 1]) * 16 for i in range(2)]
    for xid in range(1, 6):
        for talk, id_ in zip((one, two), ids, strict=True):
            talk.call(header(xid) + call(xid, read(), session=id_))
        for talk, id_ in reversed([*zip((one, two), ids, strict=True)]):
            talk.reply(header(xid) + reply(xid, did_read(10), session=id_))
    seen = monitor.snapshot()
    pairs = {(one.server_qpn, one.client_qpn) for one in seen.connections}
    assert pairs == {(0x31, 0x41), (0x32, 0x42)}
    assert {one.id: one.operations for one in seen.sessions} == {id_.hex(): 3 for id_ in ids}


def test_one_session_on_two_connections_with_the_same_xids(monitor: Monitor) -> None:
    one, two = (Talk(monitor, server_qpn=0x31 + i, client_qpn=0x41 + i) for i in range(2))
    for xid in range(1, 4):
        for slot, talk in enumerate((one, two)):
            talk.call(header(xid) + in_slot(call(xid, read()), xid, slot))
        for slot, talk in ((1, two), (0, one)):
            talk.reply(header(xid) + in_slot(reply(xid, did_read(10)), xid, slot))
    pairs = {(one.server_qpn, one.client_qpn) for one in monitor.snapshot().connections}
    assert pairs == {(0x31, 0x41), (0x32, 0x42)}


def test_without_sessions_several_exchanges_have_to_agree(monitor: Monitor) -> None:
    talk = Talk(monitor)
    for xid in range(1, 4):
        without_session(talk, xid)
    assert monitor.snapshot().connections == ()
    without_session(talk, 4)
    assert len(monitor.snapshot().connections) == 1
    without_session(talk, 5)
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.connections[0].read_bytes) == (1, 4000)
    assert seen.sessions == ()


def test_an_xid_of_two_queue_pairs_tells_nothing(monitor: Monitor) -> None:
    """Without sessions, which reply is whose cannot be known: then no connection is made up."""
    one, two = (Talk(monitor, server_qpn=0x31 + i, client_qpn=0x41 + i) for i in range(2))
    for xid in range(1, 20):
        for talk in (one, two):
            talk.call(header(xid) + call(xid, session=None, version=3, procedure=6))
        for talk in (two, one):
            talk.reply(header(xid) + words(xid, 1, 0, 0, 0, 0, 0))
    assert monitor.snapshot().connections == ()
    for xid in range(100, 104):
        without_session(one, xid)
    pairs = {(one.server_qpn, one.client_qpn) for one in monitor.snapshot().connections}
    assert pairs == {(0x31, 0x41)}


def test_other_programs_and_callbacks_tell_nothing(monitor: Monitor) -> None:
    talk = Talk(monitor)
    for xid in range(1, 9):
        talk.call(header(xid) + call(xid, read(), program=0x20000199))
        talk.reply(header(xid) + reply(xid, did_read(1)))
        talk.reply(header(xid) + call(xid, read(), program=0x40000000))
        talk.call(header(xid) + reply(xid, did_read(1)))
    assert monitor.snapshot().connections == ()


@pytest.mark.parametrize(
    "answer",
    [
        reply(7, sequence_status=BAD_SESSION),
        reply(7, accept=4),
        words(7, 1, 1, 1, 1),
        reply(7, did_read(1), session=b"another session!"),
        in_slot(reply(7, did_read(1)), 2),
        in_slot(reply(7, did_read(1)), 1, 3),
        reply(8, did_read(1)),
    ],
    ids=["refused", "not accepted", "denied", "session", "sequence", "slot", "xid"],
)
def test_a_reply_has_to_be_the_calls_own(monitor: Monitor, answer: bytes) -> None:
    talk = Talk(monitor)
    xid = int.from_bytes(answer[:4])
    for _ in range(8):
        talk.call(header(7) + call(7, read()))
        talk.reply(header(xid) + answer)
    assert monitor.snapshot().connections == ()


def test_forged_exchanges_of_one_side_make_nothing(monitor: Monitor) -> None:
    """Calls without end to invented queue pairs, and replies to none of them."""
    talk, made_up = Talk(monitor), random.Random(3)
    for xid in range(3000):
        talk.server_qpn = made_up.randrange(1 << 24)
        talk.call(header(xid) + call(xid, read(), session=made_up.randbytes(16)))
        talk.client_qpn = made_up.randrange(1 << 24)
        talk.reply(header(xid + 5000) + reply(xid + 5000, did_read(1)))
    seen = monitor.snapshot()
    assert (seen.connections, seen.sessions, seen.losses) == ((), (), Losses())
    learnt(Talk(monitor))
    assert len(monitor.snapshot().connections) == 1


def test_forged_calls_do_not_take_the_place_of_a_true_one(monitor: Monitor) -> None:
    """With the right addresses and XID, but not the session, in the middle of an exchange."""
    talk, forger = Talk(monitor), Talk(monitor, server_qpn=0x99)
    for xid in (1, 2):
        talk.call(header(xid) + call(xid, read()))
        for id_ in (bytes(16), b"not the session!"):
            forger.call(header(xid) + call(xid, read(), session=id_))
        forger.call(header(xid) + call(xid, session=None, version=3, procedure=6))
        talk.reply(header(xid) + reply(xid, did_read(1)))
    (connection,) = monitor.snapshot().connections
    assert (connection.server_qpn, connection.client_qpn) == (talk.server_qpn, talk.client_qpn)


def test_a_known_connection_is_not_learnt_again(monitor: Monitor, talk: Talk) -> None:
    for xid in range(1, 20):
        exchange(talk, xid, xid)
    forger = Talk(monitor, client_qpn=0x77)
    for xid in range(30, 40):  # to the known queue pair of the server, answered to another one
        forger.call(header(xid) + call(xid, read()))
        forger.reply(header(xid) + reply(xid, did_read(1)))
    seen = monitor.snapshot()
    assert [(one.client_qpn, one.learnt_s) for one in seen.connections] == [(talk.client_qpn, None)]
    assert seen.sessions[0].operations == 19


def test_one_that_was_learnt_ends_by_its_queue_pair(monitor: Monitor) -> None:
    talk = learnt(Talk(monitor))
    talk.disconnect(remote_qpn=talk.server_qpn)
    assert len(monitor.snapshot().connections) == 1  # for the last time
    assert monitor.snapshot().connections == ()


def test_no_room_is_told_once_and_made(bpf: None) -> None:
    with Monitor([], connections=1, sessions=4, idle_s=0.01) as monitor:
        first, second = (Talk(monitor, server_qpn=50 + i, client_qpn=60 + i) for i in range(2))
        learnt(first)
        for xid in range(1, 9):
            exchange(second, xid, xid)
        seen = monitor.snapshot()
        assert [one.server_qpn for one in seen.connections] == [50]
        assert seen.losses == Losses(connections=1)
        time.sleep(0.05)
        monitor.snapshot()  # ends the one that is idle
        monitor.snapshot()
        time.sleep(0.05)
        monitor.snapshot()
        exchange(second, 9, 9)
        assert [one.server_qpn for one in monitor.snapshot().connections] == [51]


def test_it_need_not_learn(bpf: None) -> None:
    with Monitor([], connections=4, sessions=4, learns=False) as monitor:
        talk = Talk(monitor)
        for xid in range(1, 9):
            exchange(talk, xid, xid)
        assert (monitor.snapshot().connections, monitor.strangers()) == ((), 0)


def test_what_is_not_known_yet_is_counted(monitor: Monitor) -> None:
    """Each connection once, though both of its ways pass on lo; until it is learnt."""
    talks = [Talk(monitor, server_qpn=70 + i, client_qpn=80 + i) for i in range(3)]
    assert monitor.strangers() == 0
    for talk in talks:
        talk.call(header(1) + call(1, read()))
    assert monitor.strangers() == 3
    for talk in talks:
        talk.reply(header(2) + reply(2, did_read(1)))
    assert monitor.strangers() == 3
    learnt(talks[0])
    assert (len(monitor.snapshot().connections), monitor.strangers()) == (1, 2)
    time.sleep(0.05)
    assert monitor.strangers(recent_s=0.02) == 0


def test_messages_that_are_no_rpc_are_not_counted(monitor: Monitor) -> None:
    talk, made_up = Talk(monitor), random.Random(1)
    for length in range(200):
        talk.call(made_up.randbytes(length))
    assert (monitor.strangers(), monitor.snapshot().losses) == (0, Losses())


def torn(made_up: random.Random) -> Iterator[bytes]:
    """An exchange, of which any byte may be another one, cut anywhere."""
    for whole in (
        header(1, writes=(9,)) + call(1, read()),
        header(1) + reply(1, did_read(9)),
    ):
        changed = bytearray(whole[: made_up.randrange(len(whole) + 1)])
        for _ in range(made_up.randrange(3)):
            if changed:
                changed[made_up.randrange(len(changed))] = made_up.randrange(256)
        yield bytes(changed)


def test_torn_and_changed_exchanges_do_no_harm(monitor: Monitor) -> None:
    made_up = random.Random(7)
    talk = Talk(monitor, server_qpn=5, client_qpn=6)
    for _ in range(500):
        asked, answered = torn(made_up)
        talk.call(asked)
        talk.reply(answered)
    assert all((one.server_qpn, one.client_qpn) == (5, 6) for one in monitor.snapshot().connections)
    other = learnt(Talk(monitor))
    exchange(other, 1, 1)
    found = [one for one in monitor.snapshot().connections if one.server_qpn == other.server_qpn]
    assert [one.operations for one in found] == [1]
