# SPDX-License-Identifier: BSD-2-Clause
"""Rejections, disconnects in every state, timewait and stale connections."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, World, altered_request, losing

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    ConnectionStateError,
    State,
)
from livedma.rdma.cm.engine import Engine
from livedma.wire import cm


def test_without_a_listener_the_service_id_is_invalid():
    world = World()
    mine = world.client.connect(SERVER, PORT, 17, world.now)
    world.run()
    assert world.got(world.client, events.Rejected) == [events.Rejected(mine, 8, b"", bytes(148))]
    assert world.last("REJ")["local_comm_id"] == 0
    world.assert_nothing_left()


def test_a_udp_listener_takes_no_connections():
    world = World()
    world.server.listen(PORT, "UDP")
    world.client.connect(SERVER, PORT, 17, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected)[0].reason == 8


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"transport": "RD"}, 9),
        ({"transport": "extended"}, 9),
        ({"path_mtu": 0}, 26),
        ({"qpn": 1}, 5),
        ({"local_comm_id": 0}, 5),
        ({"service_id": f"{0x013F0000 | PORT:#x}"}, 8),
    ],
)
def test_a_request_for_what_there_is_not(fields, reason):
    world = World()
    world.listen()
    altered_request(world, **fields)
    assert world.last("REJ")["reason"] == reason
    assert not world.seen[world.server] and world.server.is_idle
    assert world.server.counters.refused == 1


def test_a_rejection_with_reason_and_additional_information():
    world = World()
    _mine, theirs = world.request()
    world.server.reject(theirs, world.now, reason=26, info=b"\x03")
    world.run(0.01)
    rejected = world.got(world.client, events.Rejected)[0]
    assert (rejected.reason, rejected.info) == (26, b"\x03")
    world.run()
    world.assert_nothing_left()


def test_the_client_may_reject_an_acceptance():
    world = World()
    mine, theirs = world.accepted()
    world.client.reject(mine, world.now, private_data=b"no")
    world.run(0.01)
    rejected = world.got(world.server, events.Rejected)[0]
    assert rejected.connection is theirs and rejected.private_data.startswith(b"no")
    world.run()
    world.assert_nothing_left()


def test_a_peer_that_rejects_an_established_connection_ends_it():
    world = World()
    mine, theirs = world.established()
    ids = {"local_comm_id": theirs.local_id, "remote_comm_id": mine.local_id}
    rejection = {"attribute": "REJ", **ids, "message": "other", "reason": 4}
    world.inject(world.client, rejection, SERVER)
    ended = world.got(world.client, events.Disconnected)[0]
    assert (ended.by_peer, ended.reason) == (True, 4)
    assert mine.state is State.TIMEWAIT


def test_a_queue_pair_that_turns_up_again_ends_the_old_connection():
    world = World()
    _mine, theirs = world.established(qpn=17)
    restarted = Engine(CLIENT, source=random.Random(9))
    restarted.connect(SERVER, PORT, 17, world.now)
    world.server.receive(restarted.transmits()[0][0], CLIENT, world.now)
    world.flush()
    assert world.last("REJ")["reason"] == messages.STALE_CONNECTION
    assert theirs.state is State.DREQ_SENT
    assert world.server.counters.stale == 1
    world.run()
    world.assert_nothing_left()


def test_an_id_that_turns_up_with_another_queue_pair_is_stale():
    world = World()
    _mine, theirs = world.established()
    world.inject(world.server, {**world.last("REQ"), "qpn": 99}, CLIENT)
    assert world.last("REJ")["reason"] == messages.STALE_CONNECTION
    assert theirs.state is State.DREQ_SENT


def test_a_reply_with_a_queue_pair_that_is_connected_already_ends_both():
    world = World()
    mine, _ = world.established(qpn=17)
    other = world.client.connect(SERVER, PORT, 18, world.now)
    reply = {**world.last("REP"), "remote_comm_id": other.local_id, "local_comm_id": 1}
    world.inject(world.client, reply, SERVER)
    assert world.got(world.client, events.Rejected)[0].reason == messages.STALE_CONNECTION
    assert mine.state is State.DREQ_SENT and other.state is State.TIMEWAIT
    assert world.last("REJ")["message"] == "REP"


def test_a_late_repetition_of_a_request_in_timewait_is_stale():
    world = World()
    mine, _theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.run(0.1)
    world.inject(world.server, world.last("REQ"), CLIENT)
    assert world.last("REJ")["reason"] == messages.STALE_CONNECTION
    assert len(world.got(world.server, events.ConnectRequest)) == 1


def test_timewait_lasts_as_long_as_packets_may_be_under_way():
    world = World()
    mine, theirs = world.established()
    world.client.disconnect(mine, world.now)
    world.run(0.5)
    assert mine.state is theirs.state is State.TIMEWAIT
    assert mine in world.client.connections
    world.run(0.1)
    assert mine.state is theirs.state is State.CLOSED
    world.assert_nothing_left()


def test_the_peers_queue_pair_may_connect_again_from_timewait_on():
    world = World()
    mine, _theirs = world.established(qpn=17)
    world.client.disconnect(mine, world.now)
    world.run(0.01)
    again, accepted = world.established(qpn=17)
    assert again.state is accepted.state is State.ESTABLISHED


def test_a_request_can_be_withdrawn():
    world = World()
    mine, theirs = world.request()
    world.client.disconnect(mine, world.now)
    world.run(0.01)
    assert world.last("REJ")["reason"] == messages.TIMEOUT
    assert bytes.fromhex(world.last("REJ")["additional_info"])[:8] == (
        world.client._outbox.guid.to_bytes(8, "big")
    )
    assert world.got(world.server, events.Rejected)[0].reason == messages.TIMEOUT
    with pytest.raises(ConnectionStateError, match="REQ_RECEIVED only"):
        world.server.accept(theirs, 23, world.now)
    world.run()
    world.assert_nothing_left()


def test_a_withdrawn_request_that_is_accepted_nevertheless_is_rejected():
    world = World(losing("REJ", times=1))
    mine, theirs = world.request()
    world.client.disconnect(mine, world.now)
    world.run(0.01)
    world.server.accept(theirs, 23, world.now)
    world.run(0.01)
    assert world.got(world.server, events.Rejected)[0].reason == 6
    world.run()
    world.assert_nothing_left()


@pytest.mark.parametrize("loses", [(), ("REP",), ("RTU",)])
def test_a_server_that_closes_before_it_is_confirmed(loses):
    world = World(losing(*loses, times=1))
    _mine, theirs = world.established() if "REP" not in loses else world.accepted()
    theirs_was = theirs.state
    world.server.disconnect(theirs, world.now)
    world.run()
    assert theirs_was is (State.REP_SENT if loses else State.ESTABLISHED)
    ends = (events.Disconnected, events.Rejected)
    assert len([event for event in world.seen[world.client] if isinstance(event, ends)]) == 1
    assert len(world.got(world.server, events.ConnectRequest)) == 1
    world.assert_nothing_left()


def test_a_peer_that_closes_before_we_confirm():
    world = World()
    mine, theirs = world.accepted()
    world.server.disconnect(theirs, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Disconnected)[0].by_peer
    with pytest.raises(ConnectionStateError, match="is in TIMEWAIT"):
        world.client.confirm(mine, world.now)


def test_closing_twice_does_nothing():
    world = World()
    mine, _theirs = world.established()
    for _ in range(2):
        world.client.disconnect(mine, world.now)
    world.run(0.01)
    world.client.disconnect(mine, world.now)
    world.run()
    world.client.disconnect(mine, world.now)
    world.flush()
    assert world.names().count("DREQ") == 1


def test_what_is_not_due_is_an_error():
    world = World()
    mine, theirs = world.established()
    for attempt in (
        lambda: world.client.confirm(mine, world.now),
        lambda: world.client.reject(mine, world.now),
        lambda: world.server.accept(theirs, 23, world.now),
        lambda: world.server.reject(theirs, world.now),
    ):
        with pytest.raises(ConnectionStateError, match="is in ESTABLISHED"):
            attempt()


def test_a_disconnect_that_overtakes_the_reply_comes_again():
    world = World(lambda mad: [0.2 if cm.decode(mad)["cm"]["attribute"] == "REP" else 0.001])
    mine, theirs = world.request()
    world.server.accept(theirs, 23, world.now)
    world.server.disconnect(theirs, world.now)
    world.run(0.1)
    assert mine.state is State.REQ_SENT and world.names(CLIENT) == ["REQ"]
    world.run(0.2)
    world.client.confirm(mine, world.now)
    world.run()
    assert world.got(world.client, events.Disconnected)[0].by_peer
    world.assert_nothing_left()


def test_a_confirmation_of_what_is_closed_is_rejected():
    """A peer that, as Linux, answers a DREQ that overtook the REP."""
    world = World(losing("REP"))
    _, theirs = world.accepted()
    reply = world.last("REP")
    world.server.disconnect(theirs, world.now)
    ids = {"local_comm_id": theirs.remote_id, "remote_comm_id": theirs.local_id}
    world.flush()
    world.inject(world.server, {"attribute": "DREP", **ids}, CLIENT)
    assert theirs.state is State.TIMEWAIT
    world.inject(world.server, {"attribute": "RTU", **ids}, CLIENT)
    rejection = world.last("REJ")
    assert (rejection["message"], rejection["reason"]) == ("other", 10)
    assert rejection["local_comm_id"] == reply["local_comm_id"]


def test_a_repeated_request_ends_when_the_server_has_closed():
    world = World(losing("REP"))
    world.accepted()
    theirs = world.server.connections[0]
    world.server.disconnect(theirs, world.now)
    world.run(6)
    assert world.got(world.client, events.Rejected)[0].reason == messages.STALE_CONNECTION
    world.run()
    world.assert_nothing_left()


@pytest.mark.parametrize(("reason", "state"), [(10, State.TIMEWAIT), (8, State.CLOSED)])
def test_a_request_rejected_as_stale_waits_before_its_id_is_free(reason, state):
    world = World()
    mine, _ = world.request()
    rejection = {"attribute": "REJ", "remote_comm_id": mine.local_id, "message": "REQ"}
    world.inject(world.client, {**rejection, "reason": reason}, SERVER)
    assert mine.state is state


def test_a_server_that_closes_before_it_has_answered_rejects():
    world = World()
    mine, theirs = world.request()
    world.server.disconnect(theirs, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected) == [
        events.Rejected(mine, messages.CONSUMER_REJECT, b"", bytes(148))
    ]
