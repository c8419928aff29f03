# SPDX-License-Identifier: BSD-2-Clause
"""What the monitor makes of calls and replies, shown to it frame by frame."""

from __future__ import annotations

import pytest
from talk import (
    BAD_SESSION,
    CLIENT,
    CLIENT6,
    DELAY,
    GETATTR,
    PUTFH,
    READ,
    SERVER,
    SERVER6,
    SESSION,
    Talk,
    call,
    did_read,
    did_write,
    header,
    opaque,
    read,
    reply,
    words,
    write,
)

from livedma.monitor import Monitor
from livedma.monitor.snapshot import Connection, Losses, Session

pytestmark = pytest.mark.slow  # each test loads the programs anew


def only(monitor: Monitor) -> tuple[Connection, Session]:
    """The one connection and the one session that there are; nothing was lost."""
    seen = monitor.snapshot()
    assert seen.losses == Losses()
    (connection,), (session,) = seen.connections, seen.sessions
    assert session.connections == (connection.number,)
    assert connection.sessions == 1
    return connection, session


def test_a_read_by_chunk(monitor: Monitor, talk: Talk) -> None:
    talk.read(7, 65536)
    connection, session = only(monitor)
    assert (connection.server, connection.client) == (SERVER, CLIENT)
    assert (connection.server_qpn, connection.client_qpn) == (0x11, 0x22)
    assert (connection.credits_asked, connection.credits_granted) == (32, 64)
    assert session.id == SESSION.hex()
    for one in (connection, session):
        assert (one.operations, one.read_bytes, one.written_bytes) == (1, 65536, 0)
        assert (one.in_flight, one.latency.count) == (0, 1)
        latency = one.latency
        assert 0 < latency.p50_ns <= latency.p99_ns <= latency.max_ns == latency.sum_ns


def test_figures_are_those_of_the_interval(monitor: Monitor, talk: Talk) -> None:
    talk.read(1)
    first = only(monitor)[0]
    talk.read(2)
    talk.read(3)
    second, session = only(monitor)
    assert (first.operations, second.operations, session.operations) == (1, 2, 2)
    third, session = only(monitor)
    assert (third.operations, third.latency.count, session.read_bytes) == (0, 0, 0)
    assert first.number == third.number


@pytest.mark.parametrize(
    "opcode", ["RC_SEND_ONLY", "RC_SEND_ONLY_WITH_INVALIDATE", "RC_SEND_ONLY_WITH_IMMEDIATE"]
)
def test_an_inline_read(monitor: Monitor, talk: Talk, opcode: str) -> None:
    extra = {"ieth": {"rkey": 5}} if opcode.endswith("INVALIDATE") else {}
    talk.call(header(7) + call(7, read(1000)))
    assert only_in_flight(monitor) == 1
    talk.reply(header(7) + reply(7, did_read(999, bytes(1000))), opcode=opcode, **extra)
    assert only(monitor)[1].read_bytes == 999


def only_in_flight(monitor: Monitor) -> int:
    return monitor.snapshot().connections[0].in_flight


def test_a_reply_of_several_packets_counts_at_its_first(monitor: Monitor, talk: Talk) -> None:
    talk.call(header(7) + call(7, read(2000)))
    whole = header(7) + reply(7, did_read(2000, bytes(2000)))
    talk.reply(whole[:1024], opcode="RC_SEND_FIRST")
    talk.reply(whole[1024:2048], opcode="RC_SEND_MIDDLE")
    talk.reply(whole[2048:], opcode="RC_SEND_LAST")
    assert only(monitor)[1].read_bytes == 2000


@pytest.mark.parametrize("by_chunk", [False, True])
def test_a_write_counts_what_was_written(monitor: Monitor, talk: Talk, by_chunk: bool) -> None:
    reads = ((180, 3000), (180, 1096)) if by_chunk else ()
    data = b"" if by_chunk else bytes(400)
    count = 4096 if by_chunk else 400
    talk.call(header(7, reads=reads) + call(7, write(count, data)))
    talk.reply(header(7) + reply(7, did_write(count - 1)))
    connection, session = only(monitor)
    assert connection.written_bytes == session.written_bytes == count - 1
    assert connection.read_bytes == session.read_bytes == 0


def test_a_read_whose_reply_came_by_a_chunk(monitor: Monitor, talk: Talk) -> None:
    """Linux's server uses the reply chunk that it is offered, however short the reply."""
    talk.call(header(7, writes=(8192,), reply=(1024,)) + call(7, read(8192)))
    talk.reply(header(7, proc=1, writes=(5000,), reply=(108,)))
    connection, session = only(monitor)
    assert connection.read_bytes == session.read_bytes == 5000


@pytest.mark.parametrize("tag", [b"", b"tag of 15 bytes"])
def test_a_refused_sequence_by_a_reply_chunk_is_no_session(
    monitor: Monitor, talk: Talk, tag: bytes
) -> None:
    talk.call(header(7, reply=(1024,)) + call(7, words(GETATTR, 1, 0), tag=tag))
    talk.reply(header(7, proc=1, reply=(44 + len(tag) // 4 * 4 + 4 * bool(tag),)))
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.sessions) == (1, ())


def test_a_long_call_belongs_to_the_session_of_its_reply(monitor: Monitor, talk: Talk) -> None:
    talk.call(header(7, proc=1, reads=((0, 2000),)))
    talk.reply(header(7) + reply(7, words(PUTFH, 0, GETATTR, 0)))
    connection, session = only(monitor)
    assert (session.operations, connection.written_bytes) == (1, 0)


def test_what_failed_moves_no_bytes(monitor: Monitor, talk: Talk) -> None:
    talk.call(header(7, writes=(4096,)) + call(7, read()))
    failed = words(PUTFH, 0, READ, DELAY)
    talk.reply(header(7, writes=(4096,)) + reply(7, failed, status=DELAY))
    _, session = only(monitor)
    assert (session.operations, session.read_bytes) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        reply(7, sequence_status=BAD_SESSION),
        reply(7, accept=4),
        words(7, 1, 1, 1, 1),  # denied
    ],
)
def test_an_unknown_session_needs_a_reply_that_knows_it(
    monitor: Monitor, talk: Talk, answer: bytes
) -> None:
    talk.call(header(7) + call(7, read()))
    talk.reply(header(7) + answer)
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.connections[0].in_flight) == (1, 0)
    assert seen.sessions == ()
    assert seen.losses == Losses()


def test_rdma_error_answers_a_call(monitor: Monitor, talk: Talk) -> None:
    talk.call(header(7, reads=((200, 4096),)) + call(7, write(4096)))
    talk.reply(words(7, 1, 64, 4, 2))
    connection = monitor.snapshot().connections[0]
    assert (connection.operations, connection.in_flight, connection.bytes) == (1, 0, 0)


def test_calls_of_other_programs_count_for_the_connection(monitor: Monitor, talk: Talk) -> None:
    """NFSv3: no sessions, and bytes are those that chunks moved."""
    talk.call(header(7, writes=(4096,)) + call(7, session=None, version=3, procedure=6))
    talk.reply(header(7, writes=(4000,)) + words(7, 1, 0, 0, 0, 0, 0))
    talk.call(header(8, reads=((200, 700),)) + call(8, session=None, version=3, procedure=7))
    talk.reply(header(8) + words(8, 1, 0, 0, 0, 0, 0))
    seen = monitor.snapshot()
    assert (seen.connections[0].read_bytes, seen.connections[0].written_bytes) == (4000, 700)
    assert (seen.connections[0].operations, seen.sessions) == (2, ())


def test_callbacks_are_not_calls(monitor: Monitor, talk: Talk) -> None:
    """The server calls on the same connection; XIDs are its own."""
    talk.call(header(7) + call(7, read()))
    talk.reply(header(7) + call(7, read(), program=0x40000000))
    talk.call(header(9) + reply(9))
    talk.reply(header(7) + reply(7, did_read(5)))
    talk.reply(header(9) + call(9, read(), program=0x40000000))
    connection, session = only(monitor)
    assert (connection.operations, session.read_bytes, connection.in_flight) == (1, 5, 0)


def test_credentials_tags_and_handles_of_any_length(monitor: Monitor, talk: Talk) -> None:
    for xid in range(40):
        asked = read(handle=bytes(3 * xid))
        talk.call(header(xid) + call(xid, asked, machine=bytes(xid * 5), tag=bytes(xid)))
        talk.reply(header(xid) + reply(xid, did_read(xid), tag=bytes(xid)))
    assert only(monitor)[1].read_bytes == sum(range(40))


def test_xids_in_any_order_and_form(monitor: Monitor, talk: Talk) -> None:
    """Counted up in either byte order, or with a number of a slot below: all find their calls."""
    ways = [
        [0xFFFFFFC0 + i & 0xFFFFFFFF for i in range(128)],
        [int.from_bytes((0x12FFFFC0 + i).to_bytes(4, "little")) for i in range(128)],
        [(0xFFF + i // 8) << 12 | i for i in range(128)],
        [(0xABC + 7 * i) << 12 | i for i in range(1000)],
    ]
    for xids in ways:
        for xid in xids:
            talk.call(header(xid) + call(xid, read()))
        assert only_in_flight(monitor) == len(xids)
        for xid in reversed(xids):
            talk.reply(header(xid) + reply(xid, did_read(3)))
        connection, session = only(monitor)
        assert (session.operations, session.read_bytes) == (len(xids), 3 * len(xids))
        assert connection.in_flight == 0


def test_sessions_share_a_connection(monitor: Monitor, talk: Talk) -> None:
    ids = [bytes([i]) * 16 for i in range(5)]
    for i, session in enumerate(ids):
        for j in range(i + 1):
            talk.read(10 * i + j, 100 * (i + 1), session)
    seen = monitor.snapshot()
    assert {one.id: one.read_bytes for one in seen.sessions} == {
        session.hex(): 100 * (i + 1) ** 2 for i, session in enumerate(ids)
    }
    assert seen.connections[0].sessions == 5
    assert seen.connections[0].read_bytes == sum(one.read_bytes for one in seen.sessions)


def test_a_session_on_two_connections(monitor: Monitor, talk: Talk) -> None:
    other = Talk(monitor, server_qpn=0x33, client_qpn=0x44, comm_ids=(5, 6)).connect()
    talk.read(1)
    other.read(1)
    seen = monitor.snapshot()
    numbers = tuple(one.number for one in seen.connections)
    assert (len(numbers), seen.sessions[0].connections) == (2, numbers)
    other.read(2)
    assert monitor.snapshot().sessions[0].connections == numbers[1:]
    assert monitor.snapshot().sessions[0].connections == numbers[1:]  # idle: where it was


def test_in_flight_by_session(monitor: Monitor, talk: Talk) -> None:
    talk.read(1)
    for xid in (2, 3, 4):
        talk.call(header(xid) + call(xid, read()))
    connection, session = only(monitor)
    assert (connection.in_flight, session.in_flight) == (3, 3)
    talk.reply(header(3) + reply(3, did_read(1)))
    connection, session = only(monitor)
    assert (connection.in_flight, session.in_flight) == (2, 2)


@pytest.mark.parametrize("vlan", [(), (7,), (7, 8)])
@pytest.mark.parametrize("ends", [(SERVER, CLIENT), (SERVER6, CLIENT6)])
def test_addresses_and_tags(monitor: Monitor, vlan: tuple[int, ...], ends: tuple[str, str]) -> None:
    talk = Talk(monitor, *ends, vlan=vlan).connect()
    talk.read(1)
    connection, _ = only(monitor)
    assert (connection.server, connection.client) == ends


def test_a_handle_that_is_an_opaque_of_odd_length(monitor: Monitor, talk: Talk) -> None:
    asked = words(PUTFH) + opaque(b"abc") + words(READ) + bytes(28)
    talk.call(header(1) + call(1, asked))
    talk.reply(header(1) + reply(1, did_read(11)))
    assert only(monitor)[1].read_bytes == 11
