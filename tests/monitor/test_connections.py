# SPDX-License-Identifier: BSD-2-Clause
"""How the monitor learns of connections, and when it forgets them."""

from __future__ import annotations

import time

import pytest
from talk import CLIENT, SERVER, SESSION, Talk, call, header, read, reply

from livedma.monitor import Monitor, MonitorError
from livedma.monitor.snapshot import Losses

pytestmark = pytest.mark.slow  # each test loads the programs anew


def test_other_ports_are_not_watched(monitor: Monitor) -> None:
    Talk(monitor).connect(port=20050)
    Talk(monitor).connect(port=0)
    assert monitor.snapshot().connections == ()


@pytest.mark.parametrize("port", [4000, 4001])
def test_ports_can_be_chosen(bpf: None, port: int) -> None:
    with Monitor([], ports=(4000, 4001)) as monitor:
        Talk(monitor).connect(port=port)
        assert len(monitor.snapshot().connections) == 1


def test_another_port_space_is_not_watched(monitor: Monitor) -> None:
    talk = Talk(monitor)
    talk.ask(service_id=0x1110000 | 20049)
    talk.accept()
    assert monitor.snapshot().connections == ()


def test_a_datagram_service_is_no_connection(monitor: Monitor) -> None:
    talk = Talk(monitor)
    talk.ask(transport=1)
    talk.accept()
    assert monitor.snapshot().connections == ()


def test_an_accepted_request_that_nobody_made(monitor: Monitor) -> None:
    Talk(monitor).accept()
    assert monitor.snapshot().connections == ()


def test_messages_that_come_again_make_no_second_connection(monitor: Monitor) -> None:
    talk = Talk(monitor)
    for _ in range(3):
        talk.ask()
    for _ in range(3):
        talk.accept()
    talk.ask()
    talk.accept()
    assert len(monitor.snapshot().connections) == 1


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("attribute", ["DREQ", "DREP", "REJ"])
def test_an_end_is_told_once_with_its_last_figures(
    monitor: Monitor, talk: Talk, by_client: bool, attribute: str
) -> None:
    talk.read(1)
    talk.call(header(2) + call(2, read()))
    talk.disconnect(by_client, attribute)
    connection = monitor.snapshot().connections[0]
    assert (connection.operations, connection.unanswered, connection.in_flight) == (1, 1, 0)
    seen = monitor.snapshot()
    assert seen.connections == ()
    assert [one.connections for one in seen.sessions] == [()]


@pytest.mark.parametrize("ids", [{"local_comm_id": 1}, {"remote_comm_id": 1}])
@pytest.mark.parametrize("by_client", [True, False])
def test_a_forged_end_ends_nothing(
    monitor: Monitor, talk: Talk, ids: dict[str, int], by_client: bool
) -> None:
    talk.disconnect(by_client, **ids)
    talk.read(1)
    assert monitor.snapshot().connections[0].operations == 1
    assert len(monitor.snapshot().connections) == 1


def test_places_of_ended_connections_are_used_again(monitor: Monitor) -> None:
    numbers = []
    for i in range(12):
        talk = Talk(monitor, comm_ids=(i + 1, i + 101)).connect()
        talk.read(1, session=SESSION)
        seen = monitor.snapshot()
        assert [one.operations for one in seen.connections] == [1]
        assert seen.losses == Losses()
        numbers.append(seen.connections[0].number)
        talk.disconnect()
        monitor.snapshot()
        time.sleep(0.03)  # until no program can have it in hand
        monitor.snapshot()
    assert len(set(numbers)) == 12


def test_a_queue_pair_may_come_back_before_its_end_was_noticed(monitor: Monitor) -> None:
    Talk(monitor, comm_ids=(1, 2)).connect().disconnect()
    talk = Talk(monitor, comm_ids=(3, 4)).connect()
    talk.read(1)
    seen = monitor.snapshot()
    assert [one.operations for one in seen.connections] == [0, 1]
    talk.read(2)
    assert [one.operations for one in monitor.snapshot().connections] == [1]


def test_one_that_was_there_before_can_be_told(monitor: Monitor) -> None:
    talk = Talk(monitor)
    talk.read(1)
    assert monitor.snapshot().connections == ()
    assert monitor.learn(SERVER, talk.server_qpn, CLIENT, talk.client_qpn)
    assert not monitor.learn(SERVER, talk.server_qpn, CLIENT, talk.client_qpn)
    talk.read(2)
    connection = monitor.snapshot().connections[0]
    assert (connection.operations, connection.retransmissions) == (1, 0)
    assert (connection.server, connection.client) == (SERVER, CLIENT)


def test_one_that_was_told_in_the_middle_of_a_call(monitor: Monitor) -> None:
    talk = Talk(monitor)
    monitor.learn(SERVER, talk.server_qpn, CLIENT, talk.client_qpn)
    talk.reply(header(1) + reply(1))
    talk.read(2)
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.losses) == (1, Losses(early=1))


@pytest.mark.parametrize("by_client", [True, False])
def test_one_that_was_told_ends_by_its_queue_pair(monitor: Monitor, by_client: bool) -> None:
    talk = Talk(monitor)
    monitor.learn(SERVER, talk.server_qpn, CLIENT, talk.client_qpn)
    right = talk.server_qpn if by_client else talk.client_qpn
    for qpn, left in ((right + 1, 1), (right, 0)):
        talk.disconnect(by_client, remote_qpn=qpn)
        monitor.snapshot()
        assert len(monitor.snapshot().connections) == left


def test_a_queue_pair_alone_does_not_end_one_whose_ids_are_known(
    monitor: Monitor, talk: Talk
) -> None:
    talk.disconnect(local_comm_id=1, remote_comm_id=1, remote_qpn=talk.server_qpn)
    monitor.snapshot()
    assert len(monitor.snapshot().connections) == 1


def test_no_room_to_be_told_of_more(monitor: Monitor) -> None:
    for i in range(4):
        assert monitor.learn(SERVER, 100 + i, CLIENT, 200 + i)
    with pytest.raises(MonitorError, match="no room"):
        monitor.learn(SERVER, 300, CLIENT, 300)


def test_a_place_is_as_good_as_new_in_a_full_table(bpf: None) -> None:
    with Monitor([], connections=1) as monitor:
        for number in range(3):
            talk = Talk(monitor, comm_ids=(0xA1 + number, 0xB2 + number)).connect()
            for xid in range(1, 4):  # it is told of each time, and what it does is counted
                talk.read(xid)
                (connection,) = monitor.snapshot().connections
                assert (connection.number, connection.operations) == (number + 1, 1)
            talk.disconnect()
            assert len(monitor.snapshot().connections) == 1  # for the last time
            time.sleep(0.05)
            assert monitor.snapshot().connections == ()


def test_the_longest_idle_connection_makes_room(bpf: None) -> None:
    with Monitor([], connections=2, sessions=2, idle_s=0.01) as monitor:
        first, second = (
            Talk(monitor, server_qpn=100 + i, client_qpn=200 + i, comm_ids=(i + 1, 9)).connect()
            for i in range(2)
        )
        first.read(1)
        second.read(1)
        time.sleep(0.02)
        assert len(monitor.snapshot().connections) == 2
        second.read(2)
        assert [one.server_qpn for one in monitor.snapshot().connections] == [100, 101]
        time.sleep(0.03)
        monitor.snapshot()
        Talk(monitor, server_qpn=102, client_qpn=202, comm_ids=(3, 9)).connect()
        assert 102 in [one.server_qpn for one in monitor.snapshot().connections]


def test_idle_sessions_are_forgotten_and_found_again(bpf: None) -> None:
    with Monitor([], connections=2, sessions=1, idle_s=0.01) as monitor:
        talk = Talk(monitor).connect()
        talk.read(1)
        assert len(monitor.snapshot().sessions) == 1
        time.sleep(0.02)
        assert len(monitor.snapshot().sessions) == 1
        assert monitor.snapshot().sessions == ()
        time.sleep(0.03)
        monitor.snapshot()
        talk.read(2, 9, session=b"another session!")
        seen = monitor.snapshot()
        assert [one.read_bytes for one in seen.sessions] == [9]
        assert seen.losses == Losses()


def test_a_session_is_not_taken_for_the_one_that_has_its_place_now(bpf: None) -> None:
    with Monitor([], connections=2, sessions=1, idle_s=0.01) as monitor:
        talk = Talk(monitor).connect()
        for xid in (1, 2):  # The second call finds the session where the CPU has kept it.
            talk.read(xid)
        monitor.snapshot()
        time.sleep(0.02)
        monitor.snapshot()
        time.sleep(0.03)
        monitor.snapshot()
        talk.read(3, 9, session=b"another session!")
        talk.read(4, 100)
        seen = monitor.snapshot()
        assert [(one.id, one.read_bytes) for one in seen.sessions] == [
            (b"another session!".hex(), 9)
        ]
        assert seen.losses == Losses(sessions=1)


def test_a_session_with_a_call_under_way_is_not_forgotten(bpf: None) -> None:
    with Monitor([], connections=1, sessions=1, idle_s=0.01) as monitor:
        talk = Talk(monitor).connect()
        talk.read(1)
        talk.call(header(2) + call(2, read()))
        monitor.snapshot()
        time.sleep(0.02)
        for _ in range(3):
            assert [one.in_flight for one in monitor.snapshot().sessions] == [1]
