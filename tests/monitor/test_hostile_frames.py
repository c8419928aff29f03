# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong, forged, repeated or too much: counted for what it is, bounded, and harmless."""

from __future__ import annotations

import random

import pytest
from talk import (
    BAD_SESSION,
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

from livedma.errors import LivedmaError
from livedma.monitor import Monitor
from livedma.monitor.snapshot import Losses
from livedma.wire.encode import ethernet

pytestmark = pytest.mark.slow  # each test loads the programs anew


def test_a_call_that_comes_again_counts_once(monitor: Monitor, talk: Talk) -> None:
    packet = talk.packet(True, payload=header(1) + call(1, read()))
    for _ in range(3):
        talk.show(packet)
    answer = talk.packet(False, payload=header(1) + reply(1, did_read(10)))
    for _ in range(3):
        talk.show(answer)
    talk.show(packet)
    seen = monitor.snapshot()
    assert seen.losses == Losses()
    assert (seen.sessions[0].operations, seen.sessions[0].read_bytes) == (1, 10)
    assert (seen.connections[0].in_flight, seen.connections[0].retransmissions) == (0, 5)


def test_a_call_whose_first_copy_was_lost_counts(monitor: Monitor, talk: Talk) -> None:
    """It arrives as a retransmission, behind later PSNs."""
    lost = talk.packet(True, payload=header(1) + call(1, read()))
    talk.call(header(2) + call(2, read()))
    talk.show(lost)
    lost_reply = talk.packet(False, payload=header(1) + reply(1, did_read(1)))
    talk.reply(header(2) + reply(2, did_read(2)))
    talk.show(lost_reply)
    seen = monitor.snapshot()
    assert seen.losses == Losses()
    assert (seen.sessions[0].operations, seen.sessions[0].read_bytes) == (2, 3)
    assert seen.connections[0].retransmissions == 2


def test_an_xid_may_be_used_again(monitor: Monitor, talk: Talk) -> None:
    for _ in range(3):
        talk.read(1, 5)
    assert monitor.snapshot().sessions[0].read_bytes == 15


def test_psns_wrap(monitor: Monitor, talk: Talk) -> None:
    talk.psn = {True: 0xFFFFFD, False: 0xFFFFFE}
    for xid in range(6):
        talk.read(xid)
    connection = monitor.snapshot().connections[0]
    assert (connection.operations, connection.retransmissions) == (6, 0)


def test_a_read_request_uses_the_psns_of_its_responses(monitor: Monitor, talk: Talk) -> None:
    """3000 bytes at MTU 1024: three. What resumes it in the middle is a retransmission."""
    reth = {"va": 0, "rkey": 1, "length": 3000}
    talk.show(talk.packet(False, "RC_RDMA_READ_REQUEST", psn=50, reth=reth))
    talk.show(talk.packet(False, "RC_RDMA_READ_REQUEST", psn=53, reth=reth))
    assert monitor.snapshot().connections[0].retransmissions == 0
    rest = {"va": 2048, "rkey": 1, "length": 952}
    talk.show(talk.packet(False, "RC_RDMA_READ_REQUEST", psn=55, reth=rest))
    assert monitor.snapshot().connections[0].retransmissions == 1


@pytest.mark.parametrize(
    ("syndrome", "naks"), [(0x1F, (0, 0)), (0x05, (0, 0)), (0x2E, (1, 0)), (0x60, (0, 1))]
)
@pytest.mark.parametrize("to_server", [False, True])
def test_naks(
    monitor: Monitor, talk: Talk, syndrome: int, naks: tuple[int, int], to_server: bool
) -> None:
    talk.show(talk.packet(to_server, "RC_ACKNOWLEDGE", aeth={"syndrome": syndrome, "msn": 1}))
    connection = monitor.snapshot().connections[0]
    assert (connection.rnr_naks, connection.naks) == naks


def test_replies_to_unseen_calls(monitor: Monitor, talk: Talk) -> None:
    talk.reply(header(1) + reply(1, did_read(10)))
    seen = monitor.snapshot()
    assert (seen.losses, seen.sessions) == (Losses(replies=1), ())
    assert seen.connections[0].operations == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        words(1, 1, 1),
        header(1, version=2) + call(1, read()),
        header(1, proc=2) + call(1, read()),
        header(1, proc=77) + call(1, read()),
        words(1, 1, 1, 0, 0),
    ],
)
@pytest.mark.parametrize("to_server", [False, True])
def test_what_is_no_rpc_over_rdma(
    monitor: Monitor, talk: Talk, payload: bytes, to_server: bool
) -> None:
    talk.send(to_server, payload)
    seen = monitor.snapshot()
    assert seen.losses == Losses(unreadable=1)
    assert (seen.connections[0].in_flight, seen.sessions) == (0, ())


def test_a_call_is_one_however_early_it_ends(monitor: Monitor, talk: Talk) -> None:
    """Wherever a message ends, its XID is known: the call is open until its reply."""
    whole = header(1, reads=((180, 4096),), writes=(1, 2), reply=(9,)) + call(1, write(9))
    ends = range(28, len(whole), 4)
    for xid, end in enumerate(ends):
        talk.call(words(xid) + whole[4:end])
    seen = monitor.snapshot()
    assert (seen.connections[0].in_flight, seen.losses) == (len(ends), Losses())
    for xid, _ in enumerate(ends):
        talk.reply(header(xid) + reply(xid, did_write(4)))
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.connections[0].in_flight) == (len(ends), 0)


def test_replies_that_end_early(monitor: Monitor, talk: Talk) -> None:
    whole = header(1, writes=(4096,)) + reply(1, did_read(4096))
    ends = range(28, len(whole) + 1, 4)
    for xid, end in enumerate(ends):
        talk.call(header(xid, writes=(4096,)) + call(xid, read()))
        talk.reply(words(xid) + whole[4:end])
    seen = monitor.snapshot()
    assert (seen.connections[0].operations, seen.connections[0].in_flight) == (len(ends), 0)


def test_lists_that_lie(monitor: Monitor, talk: Talk) -> None:
    endless = words(1, 1, 32, 0) + words(1, 1, 1, 1, 0, 0) * 40
    many = words(2, 1, 32, 0, 0, 1, 0xFFFFFFFF) + bytes(200)
    huge = header(3) + words(3, 0, 2, 100003, 4, 1, 1, 0xFFFFFFF0) + bytes(64)
    for payload in (endless, many, huge):
        talk.call(payload)
        talk.reply(payload)
    seen = monitor.snapshot()
    assert seen.sessions == ()
    assert seen.connections[0].bytes == 0 or seen.connections[0].operations <= 3


def test_noise(monitor: Monitor, talk: Talk) -> None:
    """Frames with bits turned over: whatever they are taken for, nothing breaks."""
    chance = random.Random(5)
    good = [
        talk.packet(True, payload=header(1, writes=(64,)) + call(1, read())),
        talk.packet(False, payload=header(1, writes=(64,)) + reply(1, did_read(64))),
        talk.packet(True, "RC_ACKNOWLEDGE", aeth={"syndrome": 0x60, "msn": 1}),
    ]
    for _ in range(3000):
        frame = bytearray(ethernet(chance.choice(good)))
        for _ in range(chance.randrange(1, 8)):
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        monitor.feed(bytes(frame[: chance.randrange(56, len(frame) + 1)]))
    seen = monitor.snapshot()
    assert len(seen.connections) == 1
    assert len(seen.sessions) <= 16
    talk.psn = {True: 0x123456, False: 0x234567}
    talk.read(0xABCDEF, 1, session=b"0123456789abcdef")
    assert monitor.snapshot().connections[0].operations >= 1


def test_unknown_sessions_take_no_place(monitor: Monitor, talk: Talk) -> None:
    for xid in range(100):
        talk.call(header(xid) + call(xid, read(), session=xid.to_bytes(16)))
        talk.reply(header(xid) + reply(xid, sequence_status=BAD_SESSION))
    seen = monitor.snapshot()
    assert (seen.sessions, seen.losses, seen.connections[0].operations) == ((), Losses(), 100)


def test_more_sessions_than_there_is_room_for(monitor: Monitor, talk: Talk) -> None:
    for xid in range(20):
        talk.read(xid, 1, xid.to_bytes(16))
    seen = monitor.snapshot()
    assert (len(seen.sessions), seen.losses) == (16, Losses(sessions=4))
    assert seen.connections[0].operations == 20


def test_more_connections_than_there_is_room_for(monitor: Monitor) -> None:
    for i in range(6):
        Talk(monitor, server_qpn=100 + i, client_qpn=200 + i, comm_ids=(i + 1, i + 1)).connect()
    seen = monitor.snapshot()
    assert (len(seen.connections), seen.losses) == (4, Losses(connections=2))


def test_more_calls_than_there_is_room_for(monitor: Monitor, talk: Talk) -> None:
    """2,048 of one kind of XIDs fit; the oldest go first."""
    for xid in range(2050):
        talk.call(header(xid) + call(xid, read()))
    seen = monitor.snapshot()
    assert (seen.connections[0].in_flight, seen.losses) == (2048, Losses(calls=2))
    talk.reply(header(0) + reply(0, did_read(1)))
    assert monitor.snapshot().losses == Losses(calls=2, replies=1)
    talk.reply(header(2049) + reply(2049, did_read(1)))
    assert monitor.snapshot().connections[0].in_flight == 2047


def test_calls_without_reply_are_given_up(bpf: None) -> None:
    with Monitor([], connections=1, sessions=1, patience_s=0) as monitor:
        talk = Talk(monitor).connect()
        talk.call(header(1) + call(1, read()))
        connection = monitor.snapshot().connections[0]
        assert (connection.unanswered, connection.in_flight) == (1, 0)
        assert monitor.snapshot().connections[0].unanswered == 0
        talk.reply(header(1) + reply(1, did_read(10)))  # Late, but it did happen.
        seen = monitor.snapshot()
        assert (seen.connections[0].operations, seen.sessions[0].read_bytes) == (1, 10)


@pytest.mark.parametrize("vlan", [(), (5,)])
@pytest.mark.parametrize("ends", [{}, {"server": "fd01::1", "client": "fd01::2"}])
def test_every_segment_of_a_train(
    monitor: Monitor, vlan: tuple[int, ...], ends: dict[str, str]
) -> None:
    """Behind the first packet's headers, packets of one size from the BTH on, the last shorter."""
    talk = Talk(monitor, vlan=vlan, **ends).connect()
    other = Talk(monitor, server_qpn=9, client_qpn=10, comm_ids=(7, 8), vlan=vlan, **ends).connect()
    packets = [
        one.packet(True, payload=header(xid) + call(xid, read(), session=bytes([xid]) * 16))
        for xid, one in enumerate((talk, talk, other, talk))
    ]
    talk.monitor.feed(*train(packets, vlan))
    seen = monitor.snapshot()
    assert [one.in_flight for one in seen.connections] == [3, 1]
    answers = [
        one.packet(False, payload=header(xid) + reply(xid, session=bytes([xid]) * 16))
        for xid, one in enumerate((talk, talk, other, talk))
    ]
    talk.monitor.feed(*train(answers, vlan))
    seen = monitor.snapshot()
    assert [one.operations for one in seen.connections] == [3, 1]
    assert len(seen.sessions) == 4


def train(packets: list[bytes], vlan: tuple[int, ...] = ()) -> tuple[bytes, int]:
    headers = 28 if packets[0][0] >> 4 == 4 else 48
    sizes = {len(one) for one in packets[:-1]}
    assert len(sizes) == 1 and len(packets[-1]) <= sizes.pop()
    frame = ethernet(packets[0], vlan=vlan) + b"".join(one[headers:] for one in packets[1:])
    return frame, len(packets[0]) - headers


@pytest.mark.parametrize("last", ["RC_RDMA_WRITE_MIDDLE", "RC_RDMA_WRITE_LAST", "RC_SEND_ONLY"])
def test_the_middle_of_a_train_of_data(monitor: Monitor, talk: Talk, last: str) -> None:
    """A long WRITE is not looked at packet by packet, and what comes behind it is seen."""
    talk.call(header(1, writes=(4096,)) + call(1, read()))
    answer = header(1, writes=(4096,)) + reply(1, did_read(4096))
    packets = [talk.packet(False, "RC_RDMA_WRITE_MIDDLE", bytes(256)) for _ in range(8)]
    packets.append(talk.packet(False, last, answer if last == "RC_SEND_ONLY" else bytes(200)))
    monitor.feed(*train(packets))
    monitor.feed(*train(packets))
    connection = monitor.snapshot().connections[0]
    assert connection.operations == (last == "RC_SEND_ONLY")
    assert connection.retransmissions == 9
    talk.reply(answer)
    assert monitor.snapshot().connections[0].retransmissions == 0


def write_packet(talk: Talk, size: int) -> bytes:
    reth = {"va": 0, "rkey": 1, "length": size}
    return talk.packet(False, "RC_RDMA_WRITE_ONLY", bytes(size), reth=reth)


@pytest.mark.parametrize("size", [256, 128])
def test_a_train_of_whole_writes(monitor: Monitor, size: int) -> None:
    """Those of 256 bytes fill their packets, and are not looked at one by one."""
    talk = Talk(monitor)
    talk.ask(path_mtu=256)
    talk.accept()
    packets = [write_packet(talk, size) for _ in range(8)]
    monitor.feed(*train(packets))
    monitor.feed(*train(packets[4:]))
    assert monitor.snapshot().connections[0].retransmissions == 4
    talk.read(1)
    assert monitor.snapshot().connections[0].retransmissions == 0


def test_a_reply_between_writes_of_its_size(monitor: Monitor, talk: Talk) -> None:
    """Only what fills a packet can hide nothing of its size."""
    talk.call(header(1, writes=(4096,)) + call(1, read()))
    answer = header(1, writes=(4096,)) + reply(1, did_read(4096))
    size = len(answer) - 16  # a WRITE has an RETH
    packets = [write_packet(talk, size) for _ in range(4)]
    packets.append(talk.packet(False, payload=answer))
    packets += [write_packet(talk, size) for _ in range(4)]
    monitor.feed(*train(packets))
    assert monitor.snapshot().connections[0].operations == 1


def test_half_a_train_again(monitor: Monitor, talk: Talk) -> None:
    packets = [talk.packet(False, "RC_RDMA_WRITE_MIDDLE", bytes(256)) for _ in range(12)]
    monitor.feed(*train(packets[:8]))
    monitor.feed(*train(packets[4:]))
    assert monitor.snapshot().connections[0].retransmissions == 4


def test_a_train_that_is_cut(monitor: Monitor, talk: Talk) -> None:
    packets = [talk.packet(True, payload=header(i) + call(i, read())) for i in range(3)]
    frame, size = train(packets)
    for end in range(len(frame) - size, len(frame)):
        monitor.feed(frame[:end], size)
    assert monitor.snapshot().connections[0].in_flight == 3


@pytest.mark.parametrize("options", [{"connections": 0}, {"sessions": 0}, {"ports": []}])
def test_senseless_options(bpf: None, options: dict[str, object]) -> None:
    with pytest.raises(LivedmaError, match="1 to"):
        Monitor([], **options)  # type: ignore[arg-type]


def test_the_session_of_a_call_is_that_of_its_reply(monitor: Monitor, talk: Talk) -> None:
    """A known session in the call, refused in the reply: nothing of it counts for the session."""
    talk.read(1)
    talk.call(header(2) + call(2, read()))
    talk.reply(header(2) + reply(2, sequence_status=BAD_SESSION))
    seen = monitor.snapshot()
    assert [(one.id, one.operations) for one in seen.sessions] == [(SESSION.hex(), 1)]
    assert seen.connections[0].operations == 2
