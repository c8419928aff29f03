# SPDX-License-Identifier: BSD-2-Clause
"""The summary of real captures against what their packets say, read packet by packet.

The captures were taken between two kernels (rxe) and the losses made in the receiving one, so each
lost packet is in the capture, as is its repetition. How each row of TROUBLED was found:

- loss_write_middle_nak: NAKs name the WRITE MIDDLEs 12380107 and 12380138. The requester goes back
  there: 11 packets (one of them, 12380117, had left before the NAK came) and 27 are sent again.
- loss_ack_timeout: the ACK of 8633804 is there; 67 ms later all 8 packets of that WRITE come again
  and are answered with the same MSN. The ACK was lost, the 8 had been received.
- loss_read_request: one READ gets no answer and comes again after 69 ms; all 8 responses come once.
- loss_atomic_response: response 13864002 is there, and that of 13864003 behind it; the requester
  asks for both again, the MSN stays at 6. One response was lost, two requests were received twice,
  two responses were sent twice.
- loss_random_read_4pct: the requester goes back 12 times. Once to READ 7391618 because of a NAK;
  ten times to the response that it misses (7391636, 648, 670, 701, 711, 790, 793, 802, 804, 846);
  and once more to 7391636, since that READ was passed over and 642 answered: it was lost itself.
- loss_nfs_v4.2: client: SENDs 1804257, 270 and 360 unanswered for over half a second. Server:
  seven NAKs (SEND 16648711, WRITEs 743, 787, 819, 830, 894, 898), SENDs 16648501, 908, 943 and
  16649017 unanswered, READs resumed at 16648545 and 693 because a response is missing.
- rc_rnr, rc_rnr_exceeded: the packets behind one that met an RNR NAK provoke a NAK: nothing lost.
- rc_badkey, rc_noperm: refused at the first packet.
- retry_exhaust_3, retry_exhaust_7: the WRITE goes out 4 and 55 times, unanswered until the DREQ.
- ib_write_lat_rc: WRITE 8181278 comes again 0.5 ms after its ACK was captured, where round trips
  take 4 ms: the timer ran out while the ACK was on its way; both are answered. Nothing lost.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from captures import all_captures, capture, own_captures
from livedma._native.flow import FlowTable
from livedma._native.wire import Batch
from livedma.wire.summary import render, summarize

SEQUENCE, ACCESS = "PSN sequence error", "remote access error"

# name: lost by operation, retransmitted, duplicates, NAKs, RNR NAKs, verdict
TROUBLED: dict[str, tuple[dict[str, int], int, int, dict[str, int], int, str]] = {
    "loss_write_middle_nak": (
        *({"WRITE": 2}, 38, 0, {SEQUENCE: 2}, 0),
        "2 WRITE packets lost, recovered by NAK",
    ),
    "loss_ack_timeout": (
        *({"ACK": 1}, 8, 8, {}, 0),
        "1 ACK lost, WRITE repeated after a timeout of 67 ms",
    ),
    "loss_read_request": (
        *({"READ": 1}, 1, 0, {}, 0),
        "1 READ request lost, repeated after a timeout of 69 ms",
    ),
    "loss_atomic_response": (
        *({"ATOMIC_ACK": 1}, 4, 2, {}, 0),
        "1 atomic response lost, asked for again after 542 us",
    ),
    "loss_random_read_4pct": (
        *({"READ": 2, "READ_RESPONSE": 10}, 303, 38, {SEQUENCE: 1}, 0),
        "2 READ requests and 10 READ response packets lost, recovered by NAK and by repetition "
        "after up to 76 ms",
    ),
    "loss_nfs_v4.2": (
        *({"SEND": 8, "WRITE": 6, "READ_RESPONSE": 2}, 335, 3, {SEQUENCE: 7}, 0),
        "3 SEND packets lost, repeated after timeouts of up to 566 ms; "
        "5 SEND packets, 6 WRITE packets and 2 READ response packets lost, "
        "recovered by NAK and by repetition after up to 565 ms",
    ),
    "rc_rnr": ({}, 3, 0, {SEQUENCE: 1}, 1, "receiver not ready 1 time, then accepted"),
    "rc_rnr_exceeded": ({}, 9, 0, {SEQUENCE: 4}, 4, "receiver not ready 4 times: gave up"),
    "rc_badkey": ({}, 0, 0, {ACCESS: 1}, 0, f"{ACCESS}: the connection was broken off"),
    "rc_noperm": ({}, 0, 0, {ACCESS: 1}, 0, f"{ACCESS}: the connection was broken off"),
    "retry_exhaust_3": (
        *({"WRITE": 4}, 3, 0, {}, 0),
        "retries exhausted: WRITE sent 4 times, never acknowledged",
    ),
    "retry_exhaust_7": (
        *({"WRITE": 55}, 54, 0, {}, 0),
        "retries exhausted: WRITE sent 55 times, never acknowledged",
    ),
    "ib_write_lat_rc": (
        *({}, 1, 1, {}, 0),
        "nothing lost; repeated 1 time while the answer was on its way",
    ),
}
# Deliberately odd: it skips three PSNs and has a NAK for that.
ODD = {"host_userspace_rc"}

MESSAGES = {
    "loss_write_middle_nak": {"WRITE": 20},
    "loss_ack_timeout": {"WRITE": 20},
    "loss_read_request": {"READ": 20},
    "loss_atomic_response": {"FETCH_ADD": 20},
    "loss_random_read_4pct": {"READ": 40},
    "ib_send_bw_rc": {"SEND": 50},
    "ib_write_bw_v6": {"WRITE": 30},
    "rping_rc": {"SEND": 40, "WRITE": 10, "READ": 10},
    "rc_inv": {"SEND": 1},
}


def walk(path: Path, copies_after_ns: int | None = None) -> FlowTable:
    """A classic pcap file, little-endian, microseconds; each packet twice if asked to."""
    data = path.read_bytes()
    magic, link = struct.unpack("<I16xI", data[:24])
    assert magic == 0xA1B2C3D4
    table, batch, at = FlowTable(), Batch(512, 1 << 20), 24
    while at < len(data):
        seconds, us, captured, length = struct.unpack("<IIII", data[at : at + 16])
        frame = data[at + 16 : at + 16 + captured]
        time_ns = seconds * 1_000_000_000 + us * 1000
        for after_ns in (0,) if copies_after_ns is None else (0, copies_after_ns):
            if not batch.add(link, time_ns + after_ns, 0, frame, length):
                table.add(batch)
                batch.reset()
                assert batch.add(link, time_ns + after_ns, 0, frame, length)
        at += 16 + captured
    table.add(batch)
    return table


def connections(name: str) -> list[dict[str, Any]]:
    path = capture(name)
    return [c for c in summarize(walk(path))["connections"] if c["transport"] != "UD"]


@pytest.mark.parametrize("name", TROUBLED)
def test_losses_and_refusals_are_exactly_those_in_the_capture(name):
    (found,) = connections(name)
    lost, retransmitted, duplicates, naks, rnr_naks, verdict = TROUBLED[name]
    assert found["lost_by_operation"] == lost
    assert found["lost"] == sum(lost.values())
    assert found["retransmitted"] == retransmitted
    assert found["duplicates"] == duplicates
    assert found["naks"] == naks
    assert found["rnr_naks"] == rnr_naks
    assert found["verdict"] == verdict
    assert found["icrc_errors"] == 0


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_count_once(name):
    (found,) = connections(name)
    assert found["messages"] == MESSAGES[name]


def test_every_other_capture_is_clean():
    for path in own_captures():
        if path.stem in TROUBLED or path.stem in ODD:
            continue
        for found in connections(path.stem):
            assert found["verdict"] == "nothing lost", (path.stem, found)
            assert found["retransmitted"] == found["duplicates"] == found["not_captured"] == 0


def test_every_packet_belongs_to_one_entry():
    for path in all_captures():
        summary = summarize(walk(path))
        assert sum(c["packets"] for c in summary["connections"]) == summary["packets"]
        assert sum(c["bytes"] for c in summary["connections"]) == summary["bytes"]
        assert summary["not_tracked"] == summary["errors"] == summary["icrc_errors"] == 0


@pytest.mark.parametrize("name", TROUBLED)
def test_packets_captured_twice_change_nothing(name):
    (found,) = connections(name)
    twice = summarize(walk(capture(name), copies_after_ns=900))["connections"]
    (again,) = (c for c in twice if c["transport"] != "UD")
    assert again["copies"] == found["packets"]
    ignored = ("copies", "duration_s", "goodput_bps")
    assert {k: v for k, v in again.items() if k not in ignored} == {
        k: v for k, v in found.items() if k not in ignored
    }


@pytest.mark.parametrize(
    ("name", "joined_by", "ends"),
    [
        ("rc_rnr", "CM", [("10.77.0.2 QP 0x4a", "10.77.0.1 QP 0x49")]),
        ("ib_write_bw_rc", "PSN", [("10.77.0.2 QP 0x1d", "10.77.0.1 QP 0x1d")]),
        ("ibv_uc_pingpong", "addresses", [("10.77.0.2 QP 0x13", "10.77.0.1 QP 0x13")]),
        (
            *("nvme_rdma", "CM"),
            [
                ("10.77.0.2 QP 0x3c", "10.77.0.1 QP 0x3b"),
                ("10.77.0.2 QP 0x3d", "10.77.0.1 QP 0x3c"),
                ("10.77.0.2 QP 0x3e", "10.77.0.1 QP 0x3d"),
            ],
        ),
    ],
)
def test_directions_are_joined(name, joined_by, ends):
    found = connections(name)
    assert sorted((c["a"], c["b"]) for c in found) == ends
    assert {c["joined_by"] for c in found} == {joined_by}


def test_datagrams_are_told_apart_and_judged_by_nothing():
    path = capture("rc_rnr")
    managing = [c for c in summarize(walk(path))["connections"] if c["is_management"]]
    assert sorted((c["a"], c["b"], c["packets"]) for c in managing) == [
        ("10.77.0.1", "10.77.0.2 QP 0x1", 2),
        ("10.77.0.2", "10.77.0.1 QP 0x1", 3),
    ]
    assert {c["verdict"] for c in managing} == {"datagrams: nothing tells whether they arrived"}


def test_text_has_one_block_per_connection_and_the_worst_first():
    path = capture("rc_badkey")
    summary = summarize(walk(path), not_roce=3)
    blocks = render(summary).split("\n\n")
    assert len(blocks) == len(summary["connections"]) + 1
    assert blocks[0].startswith("10.77.0.2 QP 0x4d <-> 10.77.0.1 QP 0x4c   RC\n")
    assert "broken off" in blocks[0]
    assert blocks[-1] == "9 packets in 0.528 s, 3 connections, 3 frames not RoCE\n"
