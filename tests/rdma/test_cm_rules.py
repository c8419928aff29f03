"""The connection manager, rule by rule."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, STRANGER, World, losing

from livedma.rdma import cm_events as events
from livedma.rdma import cm_messages as messages
from livedma.rdma.cm_connection import (
    ConnectionStateError,
    PortInUseError,
    State,
    TableFullError,
)
from livedma.rdma.cm_engine import Engine
from livedma.rdma.cm_messages import Timing, ack_timeout
from livedma.rdma.cm_outbox import Limits
from livedma.wire import cm


def test_a_connection_from_request_to_timewait_exit():
    world = World()
    mine, theirs = world.established()
    assert mine.state is theirs.state is State.ESTABLISHED
    world.client.disconnect(mine, world.now)
    world.run()
    assert world.names() == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    assert [type(event) for event in world.seen[world.client]] == [
        events.ConnectResponse,
        events.Disconnected,
        events.TimewaitExit,
    ]
    assert [type(event) for event in world.seen[world.server]] == [
        events.ConnectRequest,
        events.Established,
        events.Disconnected,
        events.TimewaitExit,
    ]
    assert world.got(world.client, events.Disconnected)[0].by_peer is False
    assert world.got(world.server, events.Disconnected)[0].by_peer is True
    world.assert_nothing_left()


@pytest.mark.parametrize("addresses", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_both_sides_know_what_their_queue_pairs_need(addresses):
    client, server = addresses
    world = World(addresses=addresses)
    mine, theirs = world.request(
        qpn=100, path_mtu=4096, responder_resources=5, initiator_depth=9, retry_count=3,
        rnr_retry_count=2, transport="UC", source_port=50001, flow_control=True,
    )  # fmt: skip
    assert (theirs.responder_resources, theirs.initiator_depth) == (9, 5)
    world.server.accept(
        theirs, 200, world.now, responder_resources=4, initiator_depth=8, rnr_retry_count=6
    )
    world.run(0.01)
    assert (theirs.responder_resources, theirs.initiator_depth) == (4, 5)
    assert (mine.responder_resources, mine.initiator_depth) == (5, 4)
    assert (mine.peer, theirs.peer) == (server, client)
    assert (mine.remote_qpn, theirs.remote_qpn) == (200, 100)
    assert (mine.sq_psn, mine.rq_psn) == (theirs.rq_psn, theirs.sq_psn)
    assert mine.path_mtu == theirs.path_mtu == 4096
    assert mine.transport == theirs.transport == "UC"
    assert mine.flow_label == theirs.flow_label
    assert theirs.peer_port == 50001
    # Each side is told how often it may retry when the other one is not ready.
    assert (mine.rnr_retry_count, theirs.rnr_retry_count) == (6, 2)
    assert mine.retry_count == theirs.retry_count == 3
    assert mine.ack_timeout == theirs.ack_timeout == 17


def test_a_peer_cannot_raise_the_depths():
    world = World()
    mine, _theirs = world.request(responder_resources=2, initiator_depth=3)
    reply = {
        "attribute": "REP", "local_comm_id": 77, "remote_comm_id": mine.local_id, "qpn": 5,
        "responder_resources": 255, "initiator_depth": 255,
    }  # fmt: skip
    world.inject(world.client, reply, SERVER)
    assert (mine.responder_resources, mine.initiator_depth) == (2, 3)


@pytest.mark.parametrize(
    ("ack_delay", "lifetime", "code"),
    [(15, 16, 17), (16, 16, 18), (20, 16, 20), (18, 16, 19), (0, 0, 2), (31, 31, 31), (0, 14, 15)],
)
def test_the_ack_timeout_is_rounded_as_linux_does(ack_delay, lifetime, code):
    assert ack_timeout(ack_delay, lifetime) == code


def test_the_first_psns_are_random():
    world = World()
    psns = {world.request(qpn=qpn)[0].rq_psn for qpn in range(2, 22)}
    assert len(psns) > 15


def test_ids_carry_the_slot_and_cannot_be_guessed():
    for slot in (0, 7, 255):
        engine = Engine(CLIENT, slot=slot)
        ids = [engine.connect(SERVER, PORT, 17, 0.0).local_id for _ in range(50)]
        assert {number >> 24 for number in ids} == {slot}
        assert len(set(ids)) == 50 and sorted(ids) != ids
        assert engine.resolve(SERVER, PORT, 0.0).request_id >> 24 == slot
    with pytest.raises(ValueError, match="slot 256"):
        Engine(CLIENT, slot=256)


class Dull(random.Random):
    """Says each number twice."""

    def __init__(self) -> None:
        self.calls = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        self.calls += 1
        return self.calls // 16 % (1 << k)


def test_an_id_in_use_is_not_given_out_again():
    engine = Engine(CLIENT, source=Dull())
    ids = [engine.connect(SERVER, PORT, 17, 0.0, source_port=1).local_id for _ in range(20)]
    assert len(set(ids)) == 20 and 0 not in ids


# --- Private data ---------------------------------------------------------------------------


def padded(data: bytes, length: int) -> bytes:
    return data.ljust(length, b"\0")


def test_private_data_of_every_message():
    world = World()
    mine, theirs = world.request(private_data=b"Q" * 56)
    assert world.got(world.server, events.ConnectRequest)[0].private_data == b"Q" * 56
    world.server.accept(theirs, 23, world.now, private_data=b"P" * 196)
    world.run(0.01)
    assert world.got(world.client, events.ConnectResponse)[0].private_data == b"P" * 196
    world.client.confirm(mine, world.now, b"U" * 224)
    world.run(0.01)
    assert world.got(world.server, events.Established)[0].private_data == b"U" * 224
    theirs.drep_private_data = b"E" * 224
    world.client.disconnect(mine, world.now, b"D" * 220)
    world.run(0.01)
    assert world.got(world.server, events.Disconnected)[0].private_data == b"D" * 220
    assert world.got(world.client, events.Disconnected)[0].private_data == b"E" * 224


def test_private_data_of_a_rejection():
    world = World()
    mine, theirs = world.request()
    world.server.reject(theirs, world.now, private_data=b"J" * 148)
    world.run(0.01)
    assert world.got(world.client, events.Rejected) == [events.Rejected(mine, 28, b"", b"J" * 148)]


def test_private_data_that_is_too_long_changes_nothing():
    world = World()
    mine, theirs = world.request()
    server, client = world.server, world.client
    for attempt in (
        lambda: client.connect(SERVER, PORT, 18, world.now, private_data=bytes(57)),
        lambda: server.accept(theirs, 23, world.now, private_data=bytes(197)),
        lambda: server.reject(theirs, world.now, private_data=bytes(149)),
        lambda: client.resolve(SERVER, PORT, world.now, private_data=bytes(181)),
    ):
        with pytest.raises(ValueError, match="bytes of private data"):
            attempt()
    assert client.connections == [mine] and theirs.state is State.REQ_RECEIVED
    server.accept(theirs, 23, world.now)
    world.run(0.01)
    with pytest.raises(ValueError, match="bytes of private data"):
        client.confirm(mine, world.now, bytes(225))
    client.confirm(mine, world.now)
    with pytest.raises(ValueError, match="bytes of private data"):
        client.disconnect(mine, world.now, bytes(221))
    assert mine.state is State.ESTABLISHED


def test_addresses_of_two_kinds_do_not_connect():
    world = World()
    with pytest.raises(ValueError, match="different IP versions"):
        world.client.connect("fd00::2", PORT, 17, world.now)
    assert world.client.is_idle


# --- Rejections -----------------------------------------------------------------------------


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


def altered_request(world: World, **fields) -> None:
    """A REQ as the client would send it, but for these fields."""
    engine = Engine(CLIENT)
    engine.connect(SERVER, PORT, 17, 0.0)
    message = cm.decode(engine.transmits()[0][0])["cm"]
    world.inject(world.server, {**message, **fields}, CLIENT)


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


# --- Losses and repetitions -----------------------------------------------------------------


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


# --- Taking long ----------------------------------------------------------------------------


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


# --- Stale connections and timewait ---------------------------------------------------------


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


# --- Closing in every state -----------------------------------------------------------------


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


# --- Listeners ------------------------------------------------------------------------------


def test_one_listener_a_port_and_space():
    engine = Engine(SERVER)
    listener = engine.listen(PORT)
    engine.listen(PORT, "UDP")
    with pytest.raises(PortInUseError, match="TCP port 7174"):
        engine.listen(PORT)
    engine.unlisten(listener, 0.0)
    engine.unlisten(listener, 0.0)
    engine.listen(PORT)
    with pytest.raises(ValueError, match="port 0"):
        engine.listen(0)
    with pytest.raises(ValueError, match="'SCTP'"):
        engine.listen(1, "SCTP")


def test_a_listener_that_ends_rejects_what_waits():
    world = World()
    established, _ = world.established(qpn=17)
    waiting, _ = world.request(qpn=18)
    listener = world.got(world.server, events.ConnectRequest)[0].listener
    world.server.unlisten(listener, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected) == [
        events.Rejected(waiting, messages.CONSUMER_REJECT, b"", bytes(148))
    ]
    assert established.state is State.ESTABLISHED
    later = world.client.connect(SERVER, PORT, 19, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected)[1].connection is later


def test_what_the_backlog_has_no_room_for_comes_again():
    world = World()
    world.listen(backlog=2)
    for qpn in (17, 18, 19):
        world.client.connect(SERVER, PORT, qpn, world.now)
    world.run(0.01)
    requests = world.got(world.server, events.ConnectRequest)
    assert len(requests) == 2 and world.server.counters.backlog_full == 1
    world.server.accept(requests[0].connection, 23, world.now)
    world.run(5)
    assert len(world.got(world.server, events.ConnectRequest)) == 3


def test_both_sides_may_have_the_same_address():
    world = World(addresses=(CLIENT, CLIENT))
    engine = world.engines[CLIENT]
    engine.listen(PORT)
    mine = engine.connect(CLIENT, PORT, 17, world.now)
    world.run(0.01)
    theirs = world.got(engine, events.ConnectRequest)[0].connection
    engine.accept(theirs, 23, world.now)
    world.run(0.01)
    engine.confirm(mine, world.now)
    world.run(0.01)
    assert mine.state is theirs.state is State.ESTABLISHED
    engine.disconnect(theirs, world.now)
    world.run()
    assert len(world.got(engine, events.Disconnected)) == 2
    world.assert_nothing_left()


# --- Who says it ----------------------------------------------------------------------------


@pytest.mark.parametrize("attribute", ["DREQ", "DREP", "REJ", "RTU", "REP", "MRA"])
def test_messages_from_another_address_do_nothing(attribute):
    world = World()
    mine, theirs = world.accepted() if attribute in ("RTU", "MRA") else world.established()
    if attribute == "DREP":
        world.client.disconnect(mine, world.now)
    engine, target, other = (
        (world.server, theirs, mine)
        if attribute in ("RTU", "MRA", "DREQ")
        else (world.client, mine, theirs)
    )
    before = (target.state, target.deadline, target.remote_qpn)
    message = {
        "attribute": attribute, "local_comm_id": other.local_id, "qpn": 99,
        "remote_comm_id": target.local_id, "remote_qpn": target.qpn,
        "message": "REP" if attribute == "MRA" else "other", "reason": 28, "service_timeout": 20,
    }  # fmt: skip
    world.inject(engine, message, STRANGER)
    assert (target.state, target.deadline, target.remote_qpn) == before
    assert engine.counters.misdirected == 1
    assert not [1 for _, to, _ in world.sent if to == STRANGER]


@pytest.mark.parametrize("attribute", ["REJ", "MRA"])
def test_answers_to_a_request_from_another_address_do_nothing(attribute):
    world = World()
    mine, _ = world.request()
    before = mine.deadline
    message = {
        "attribute": attribute, "remote_comm_id": mine.local_id, "local_comm_id": 1,
        "message": "REQ", "reason": 8, "service_timeout": 24,
    }  # fmt: skip
    world.inject(world.client, message, STRANGER)
    assert mine.state is State.REQ_SENT and mine.deadline == before


def test_a_disconnect_has_to_name_the_queue_pair():
    world = World()
    mine, theirs = world.established()
    ids = {"local_comm_id": mine.local_id, "remote_comm_id": theirs.local_id}
    world.inject(world.server, {"attribute": "DREQ", **ids, "remote_qpn": 24}, CLIENT)
    assert theirs.state is State.ESTABLISHED and world.server.counters.misdirected == 1


def test_a_timeout_does_not_end_what_is_established_without_both_ids():
    world = World()
    mine, theirs = world.established()
    rejection = {"attribute": "REJ", "message": "other", "reason": 4}
    world.inject(world.server, {**rejection, "local_comm_id": mine.local_id}, CLIENT)
    assert theirs.state is State.ESTABLISHED


# --- Floods ---------------------------------------------------------------------------------


def flood(world: World, count: int, seed: int = 0) -> None:
    engine = Engine(STRANGER, source=random.Random(seed))
    for qpn in range(count):
        engine.connect(SERVER, PORT, 100 + 1000 * seed + qpn, world.now)
    for mad, _ in engine.transmits():
        world.server.receive(mad, STRANGER, world.now)
    world.flush()


def test_a_flood_of_requests_is_bounded_by_the_backlog():
    world = World()
    world.listen(backlog=16)
    flood(world, 500)
    assert len(world.server.connections) == 16
    assert world.server.counters.backlog_full == 484


def test_a_flood_of_requests_that_are_accepted_is_bounded():
    world = World(limits=Limits(half_open=20))
    world.listen()
    world.on_event = lambda engine, event: (
        isinstance(event, events.ConnectRequest) and engine.accept(event.connection, 23, world.now)
    )
    for seed in range(10):
        flood(world, 10, seed)
    assert len(world.server.connections) == 20
    assert world.server.counters.table_full == 80


def test_a_flood_of_requests_that_are_rejected_is_bounded():
    world = World(limits=Limits(rejections=20))
    world.listen()
    world.on_event = lambda engine, event: (
        isinstance(event, events.ConnectRequest) and engine.reject(event.connection, world.now)
    )
    for seed in range(10):
        flood(world, 10, seed)
    assert len(world.server.connections) == 20
    assert world.server.counters.forgotten == 80
    world.run()
    world.assert_nothing_left()


def test_a_full_table_has_no_resources():
    world = World(limits=Limits(connections=2))
    world.listen()
    flood(world, 3)
    assert world.last("REJ")["reason"] == messages.NO_RESOURCES
    for qpn in (17, 18):
        world.client.connect(SERVER, PORT, qpn, world.now)
    with pytest.raises(TableFullError, match="2 connections"):
        world.client.connect(SERVER, PORT, 19, world.now)


@pytest.mark.parametrize("code", [0, 31])
def test_a_peers_times_are_bounded(code):
    world = World(losing("REP"))
    world.listen()
    altered_request(
        world,
        local_cm_response_timeout=code,
        remote_cm_response_timeout=code,
        primary_ack_timeout=code,
    )
    theirs = world.got(world.server, events.ConnectRequest)[0].connection
    start = world.now
    world.server.accept(theirs, 23, world.now)
    world.run()
    assert 16 * 0.05 <= world.now - start <= 18 * 20
    world.assert_nothing_left()


def test_many_moves_of_one_timer_leave_no_heap():
    world = World()
    mine, _ = world.request()
    for step in range(5000):
        world.client._table.timers.set(mine, world.now + 10 + step)
    assert len(world.client._table.timers._heap) < 200
    assert world.client.next_timer == world.now + 10 + 4999
