# SPDX-License-Identifier: BSD-2-Clause
"""Lost and repeated messages, and users that take long."""

from __future__ import annotations

import pytest
from cm_world import CLIENT, PORT, SERVER, World, losing

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    State,
)
from livedma.rdma.cm.messages import Timing


def padded(data: bytes, length: int) -> bytes:
    return data.ljust(length, b"\0")


def test_a_request_is_repeated_until_somebody_answers():
    world = World(losing("REQ", times=3))
    world.listen()
    world.client.connect(SERVER, PORT, 17, world.now)
    start = world.now
    world.run(20)
    assert world.names(CLIENT) == ["REQ"] * 4
    assert len(world.got(world.server, events.ConnectRequest)) == 1
    assert world.client.counters.repeated == 3
    assert world.now > start


def test_a_request_that_nobody_answers_is_unreachable():
    world = World(losing("REQ"))
    mine = world.client.connect(SERVER, PORT, 17, world.now)
    start = world.now
    world.run()
    assert world.names() == ["REQ"] * 16 + ["REJ"]
    assert world.last("REJ")["reason"] == messages.TIMEOUT
    assert world.seen[world.client] == [events.Unreachable(mine), events.TimewaitExit(mine)]
    waited = 16 * Timing().request_seconds
    assert world.now - start == pytest.approx(waited + messages.seconds(17))
    world.assert_nothing_left()


def test_a_repeated_request_gets_the_same_reply():
    world = World(losing("REP", times=1))
    mine, _theirs = world.accepted()
    req = next(m for _, _, m in world.sent if m["attribute"] == "REQ")
    world.inject(world.server, req, CLIENT)
    world.run(0.01)
    replies = [m for _, _, m in world.sent if m["attribute"] == "REP"]
    assert len(replies) == 2 and replies[0] == replies[1]
    assert mine.state is State.REP_RECEIVED
    assert len(world.got(world.server, events.ConnectRequest)) == 1


def test_a_repeated_request_gets_the_same_rejection():
    world = World(losing("REJ", times=2))
    _mine, theirs = world.request()
    world.server.reject(theirs, world.now, private_data=b"full")
    world.run()
    assert world.names(CLIENT) == ["REQ"] * 3
    assert world.got(world.client, events.Rejected)[0].private_data == padded(b"full", 148)
    assert len(world.got(world.server, events.ConnectRequest)) == 1
    world.assert_nothing_left()


def test_a_lost_reply_is_sent_again():
    world = World(losing("REP", "REQ", times=1))
    world.listen()
    mine = world.client.connect(SERVER, PORT, 17, world.now)
    world.run(6)
    theirs = world.got(world.server, events.ConnectRequest)[0].connection
    world.server.accept(theirs, 23, world.now)
    world.run(6)
    assert mine.state is State.REP_RECEIVED
    assert len(world.got(world.client, events.ConnectResponse)) == 1


def test_a_repeated_reply_gets_the_confirmation_again():
    world = World(losing("RTU", times=1))
    _mine, theirs = world.established()
    assert theirs.state is State.REP_SENT
    world.run(6)
    assert world.names() == ["REQ", "REP", "RTU", "REP", "RTU"]
    assert theirs.state is State.ESTABLISHED
    assert len(world.got(world.server, events.Established)) == 1


def test_a_reply_that_nobody_confirms_is_unreachable():
    world = World(losing("RTU"))
    _mine, theirs = world.established()
    world.run()
    assert world.got(world.server, events.Unreachable) == [events.Unreachable(theirs)]
    assert world.got(world.client, events.Disconnected)[0].reason == messages.TIMEOUT
    world.assert_nothing_left()


def test_data_that_overtakes_the_confirmation_establishes():
    world = World(losing("RTU", times=1))
    _mine, theirs = world.established()
    assert world.server.establish(theirs) is True
    assert world.server.establish(theirs) is False
    world.run(60)
    assert world.names().count("REP") == 1
    assert world.got(world.server, events.Established) == [events.Established(theirs, b"")]
    rtu = world.last("RTU")
    world.inject(world.server, rtu, CLIENT)
    assert len(world.got(world.server, events.Established)) == 1
    assert world.server.counters.duplicate == 1


def test_a_lost_disconnect_is_repeated():
    world = World(losing("DREQ", "DREP", times=1))
    mine, _theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.run()
    assert world.names().count("DREQ") == 3 and world.names().count("DREP") == 2
    for engine in (world.client, world.server):
        assert len(world.got(engine, events.Disconnected)) == 1
    world.assert_nothing_left()


def test_a_disconnect_ends_even_if_nobody_answers():
    world = World(losing("DREQ"))
    mine, theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.run()
    assert world.got(world.client, events.Disconnected) == [events.Disconnected(mine, False, b"")]
    assert mine.state is State.CLOSED and theirs.state is State.ESTABLISHED


def test_both_disconnect_at_once():
    world = World()
    mine, theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.server.disconnect(theirs, world.now)
    world.run()
    assert sorted(world.names()[3:]) == ["DREP", "DREP", "DREQ", "DREQ"]
    for engine in (world.client, world.server):
        assert len(world.got(engine, events.Disconnected)) == 1
    world.assert_nothing_left()


def test_a_disconnect_of_an_unknown_connection_is_answered():
    world = World()
    request = {"attribute": "DREQ", "local_comm_id": 5, "remote_comm_id": 6, "remote_qpn": 7}
    world.inject(world.server, request, CLIENT)
    reply = world.last("DREP")
    assert (reply["local_comm_id"], reply["remote_comm_id"]) == (6, 5)
    assert world.server.counters.unmatched == 1


def test_a_disconnect_in_timewait_is_answered():
    world = World()
    mine, theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.run(0.01)
    assert theirs.state is State.TIMEWAIT
    world.inject(world.server, world.last("DREQ"), CLIENT)
    assert world.names().count("DREP") == 2
    assert len(world.got(world.server, events.Disconnected)) == 1


def test_a_reply_for_no_connection_is_rejected():
    world = World()
    reply = {"attribute": "REP", "local_comm_id": 5, "remote_comm_id": 6, "qpn": 7}
    world.inject(world.client, reply, SERVER)
    rejection = world.last("REJ")
    assert (rejection["message"], rejection["reason"]) == ("REP", 6)
    assert (rejection["local_comm_id"], rejection["remote_comm_id"]) == (6, 5)


def test_a_second_reply_to_one_request_is_rejected():
    world = World()
    mine, theirs = world.established()
    other = {**world.last("REP"), "local_comm_id": theirs.local_id ^ 1, "qpn": 99}
    world.inject(world.client, other, SERVER)
    assert world.last("REJ")["reason"] == 6
    assert mine.state is State.ESTABLISHED and mine.remote_qpn == 23


def test_a_server_that_takes_long_asks_for_time():
    world = World()
    mine, theirs = world.request()
    world.run(3)
    assert world.names() == ["REQ", "MRA"]
    mra = world.last("MRA")
    assert (mra["message"], mra["service_timeout"]) == ("REQ", 24)
    world.run(60)
    assert world.names() == ["REQ", "MRA"]  # the client waits
    world.server.accept(theirs, 23, world.now)
    world.run(0.01)
    assert mine.state is State.REP_RECEIVED


def test_a_lost_mra_is_sent_again_for_a_repeated_request():
    world = World(losing("MRA", times=1))
    world.request()
    world.run(60)
    assert world.names() == ["REQ", "MRA", "REQ", "MRA"]


def test_an_mra_is_honoured_once_per_request_sent():
    world = World()
    mine, _theirs = world.request()
    world.run(3)
    first = mine.deadline
    world.run(1)
    world.inject(world.client, world.last("MRA"), SERVER)
    assert mine.deadline == first
    world.run(80)
    assert world.names().count("REQ") == 2  # asked again at last, and told to wait again
    assert world.names().count("MRA") == 2
    assert mine.deadline > first


def test_a_peer_cannot_make_a_request_wait_for_hours():
    world = World()
    mine, _theirs = world.request()
    world.run(3)
    world.inject(world.client, {**world.last("MRA"), "service_timeout": 31}, SERVER)
    assert mine.deadline - world.now < 80


def test_a_client_that_takes_long_asks_for_time():
    world = World()
    mine, theirs = world.accepted()
    world.run(60)
    assert world.names() == ["REQ", "REP", "MRA"]
    assert world.last("MRA")["message"] == "REP"
    world.client.confirm(mine, world.now)
    world.run(0.01)
    assert theirs.state is State.ESTABLISHED


def test_an_mra_about_a_path_delays_nothing():
    world = World()
    mine, theirs = world.accepted()
    before = theirs.deadline
    ids = {"local_comm_id": mine.local_id, "remote_comm_id": theirs.local_id}
    mra = {"attribute": "MRA", **ids, "message": "LAP", "service_timeout": 24}
    world.inject(world.server, mra, CLIENT)
    assert theirs.deadline == before and world.server.counters.unexpected == 1


def test_an_mra_says_how_long():
    world = World()
    mine, theirs = world.request()
    ids = {"local_comm_id": theirs.local_id, "remote_comm_id": mine.local_id}
    mra = {"attribute": "MRA", **ids, "message": "REQ", "service_timeout": 20}
    world.inject(world.client, mra, SERVER)
    assert mine.deadline - world.now == pytest.approx(messages.seconds(20) + messages.seconds(17))


def test_a_repeated_reply_that_is_not_confirmed_yet_is_told_to_wait():
    world = World()
    world.accepted()
    world.inject(world.client, world.last("REP"), SERVER)
    assert world.last("MRA")["message"] == "REP"
    assert len(world.got(world.client, events.ConnectResponse)) == 1


def test_a_rejection_is_remembered_as_long_as_the_peer_was_told_to_wait():
    world = World(losing("REJ", times=1), timing=Timing(max_retries=2))
    _, theirs = world.request()
    world.run(3)
    assert world.names() == ["REQ", "MRA"]
    world.server.reject(theirs, world.now)
    world.run(100)
    assert world.names() == ["REQ", "MRA", "REJ", "REQ", "REJ"]
    assert len(world.got(world.server, events.ConnectRequest)) == 1
