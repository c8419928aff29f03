# SPDX-License-Identifier: BSD-2-Clause
"""What is wrong with packets: every kind of contradiction, and what NAKs say."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest

import captures
import frames
from frames import Extension
from livedma import wire

# Contradictions: each error with its text, the byte it names, and whether the ICRC holds.

RETH = struct.pack(">QII", 0x1000, 0x42, 8)
V4 = 14  # where IP starts, then UDP and the BTH
UDP, BTH = V4 + 20, V4 + 28


def patched(frame: bytes, at: int, *values: int) -> bytes:
    return frame[:at] + bytes(values) + frame[at + len(values) :]


SEND = frames.roce2(frames.v4(frames.bth(4) + b"payload!"))
SEND6 = frames.roce2(frames.v6(frames.bth(4) + b"payload!"))
SEND1 = frames.ethernet(0x8915, frames.grh(frames.bth(4) + b"payload!"))


def over_v4(transport: bytes) -> bytes:
    return frames.roce2(frames.v4(transport))


FRAGMENT6 = frames.v6(frames.bth(4), extensions=(Extension(44, b"\0\x09\1\2\3\4"),))

# (kind, frame, length on the wire or None, text, byte, icrc_ok)
ERRORS: list[tuple[str, bytes, int | None, str, int, bool | None]] = [
    ("SHORT", over_v4(b""), None, "BTH cut short: needs 16 bytes, 4 there", BTH, False),
    ("SHORT", over_v4(frames.bth(4)[:11]), None, "BTH cut short: needs 16 bytes, 15", BTH, False),
    ("SHORT", SEND[: BTH + 5], len(SEND), "BTH cut short: needs 12 bytes, 5 there", BTH, None),
    (
        "SHORT",
        over_v4(frames.bth(0x0A) + RETH[:15]),
        None,
        "RETH cut short: needs 16 bytes, 15 there",
        BTH + 12,
        True,
    ),
    (
        "SHORT",
        over_v4(frames.bth(0x0B) + RETH + b"\1\2"),
        None,
        "IMMDT cut short: needs 4 bytes, 2 there",
        BTH + 28,
        True,
    ),
    ("SHORT", SEND1[:30], None, "GRH cut short: needs 40 bytes, 16 there", 14, False),
    ("SHORT", SEND1[:30], 80, "GRH cut short: needs 40 bytes, 16 there", 14, None),
    (
        "CAPTURE",
        SEND[:-5],
        len(SEND),
        f"packet cut short by the capture: {len(SEND) - 5} of {len(SEND)} bytes there",
        len(SEND) - 5,
        None,
    ),
    ("IP_VERSION", patched(SEND, V4, 0x65), None, "IP has version 6 where 4 belongs", V4, False),
    ("IP_VERSION", patched(SEND6, V4, 0x40), None, "IP has version 4 where 6 belongs", V4, False),
    ("IP_VERSION", patched(SEND1, V4, 0x40), None, "GRH has version 4 where 6 belongs", V4, False),
    (
        "NEXT_HEADER",
        patched(SEND1, V4 + 6, 17),
        None,
        "GRH names 17 as the next header where 27 belongs",
        V4 + 6,
        False,
    ),
    (
        "IP_HEADER",
        patched(SEND, V4, 0x44),
        None,
        "IP has an impossible header length of 16 bytes (packet: 52)",
        V4,
        False,
    ),
    (
        "IP_HEADER",
        patched(SEND, V4 + 2, 0, 19),
        None,
        "IP has an impossible header length of 20 bytes (packet: 19)",
        V4,
        False,
    ),
    (
        "IP_LENGTH",
        patched(SEND, V4 + 2, 1, 0),
        None,
        "IP says 256 bytes, the frame carries 52",
        V4,
        False,
    ),
    (
        "IP_LENGTH",
        patched(SEND1, V4 + 4, 1, 0),
        None,
        "GRH says 256 bytes, the frame carries 24",
        V4 + 4,
        False,
    ),
    (
        "IP_LENGTH",
        patched(frames.roce2(FRAGMENT6.replace(b"\0\x09", b"\0\0", 1)), V4 + 4, 0, 7),
        None,
        "IP says 7 bytes, the frame carries 8",
        V4 + 4,
        False,
    ),
    (
        "FRAGMENT",
        patched(SEND, V4 + 6, 0x20, 2),
        None,
        "IP is a fragment (offset 16, more: 1): RoCE is never fragmented",
        V4 + 6,
        False,
    ),
    (
        "FRAGMENT",
        frames.roce2(FRAGMENT6),
        None,
        "IP is a fragment (offset 8, more: 1): RoCE is never fragmented",
        V4 + 40,
        False,
    ),
    (
        "UDP_LENGTH",
        patched(SEND, UDP + 4, 0, 31),
        None,
        "UDP says 31 bytes, IP carries 32",
        UDP + 4,
        False,
    ),
    (
        "UDP_LENGTH",
        patched(SEND6, V4 + 40 + 4, 1, 0),
        None,
        "UDP says 256 bytes, IP carries 32",
        V4 + 44,
        False,
    ),
    ("OPCODE", over_v4(frames.bth(0x15)), None, "BTH has unknown opcode 0x15", BTH, True),
    ("OPCODE", over_v4(frames.bth(0xFF)), None, "BTH has unknown opcode 0xff", BTH, True),
    (
        "TRANSPORT_VERSION",
        over_v4(frames.bth(4, flags=3)),
        None,
        "BTH has transport version 3 where 0 belongs",
        BTH + 1,
        True,
    ),
    (
        "PAD",
        over_v4(frames.bth(4, flags=0x30) + b"12"),
        None,
        "BTH says 3 bytes of padding, 2 bytes are there",
        BTH + 1,
        True,
    ),
    (
        "PAD_POSITION",
        over_v4(frames.bth(1, flags=0x20) + b"1234"),
        None,
        "BTH says 2 bytes of padding in the middle of a message",
        BTH + 1,
        True,
    ),
    (
        "ALIGNMENT",
        over_v4(frames.bth(4, flags=0x20) + b"12345"),
        None,
        "payload with its padding is 5 bytes long, no multiple of 4",
        BTH + 12,
        True,
    ),
    (
        "PAYLOAD",
        over_v4(frames.bth(0x0C) + RETH + b"1234"),
        None,
        "RC_RDMA_READ_REQUEST carries 4 bytes of payload where 0 belong",
        BTH + 28,
        True,
    ),
    (
        "PAYLOAD",
        over_v4(frames.bth(0x1D) + RETH + b"1234"),
        None,
        "RC_ATOMIC_WRITE carries 4 bytes of payload where 8 belong",
        BTH + 28,
        True,
    ),
    (
        "WRITE_LENGTH",
        over_v4(frames.bth(0x0A) + RETH + b"1234"),
        None,
        "RETH says 8 bytes, the packet carries 4",
        BTH + 12,
        True,
    ),
    (
        "WRITE_LENGTH",
        over_v4(frames.bth(0x4B) + bytes(12) + RETH + bytes(4) + b"1234"),
        None,
        "RETH says 8 bytes, the packet carries 4",
        BTH + 24,
        True,
    ),
    (
        "WRITE_LENGTH",
        over_v4(frames.bth(0x06) + RETH + b"12345678"),
        None,
        "RETH says 8 bytes, the packet carries 8",
        BTH + 12,
        True,
    ),
]


@pytest.mark.parametrize(
    ("kind", "frame", "length", "text", "at", "icrc_ok"), ERRORS, ids=lambda v: str(v)[:12]
)
def test_contradictions_are_told_with_their_byte(
    kind: str, frame: bytes, length: int | None, text: str, at: int, icrc_ok: bool | None
) -> None:
    packet = wire.decode(frame, length=length)
    assert packet is not None
    assert packet.error.startswith(text)
    assert packet.error.endswith(f", at byte {at}")
    assert packet.to_dict()["error"] == packet.error
    assert packet.icrc_ok is icrc_ok


@pytest.mark.parametrize(
    ("field", "offset", "more"), [(0x2000, 0, 1), (0x0001, 8, 0), (0x1FFF, 65528, 0)]
)
def test_first_and_last_fragments_are_fragments(field: int, offset: int, more: int) -> None:
    four = frames.roce2(frames.v4(frames.bth(4), flags=field))
    extension = Extension(44, struct.pack(">HI", offset | more, 7))
    six = frames.roce2(frames.v6(frames.bth(4), extensions=(extension,)))
    for frame in (four, six):
        packet = wire.decode(frame)
        assert packet.error.startswith(f"IP is a fragment (offset {offset}, more: {more})")
        assert packet.icrc_ok is False
        assert "opcode" not in packet.to_dict()


def test_every_kind_of_error_is_provoked() -> None:
    header = Path(__file__).resolve().parents[2] / "native" / "wire" / "packet.h"
    kinds = re.findall(r'^\tX\((\w+), "', header.read_text(), re.MULTILINE)
    assert len(kinds) > 10
    assert set(kinds) == {kind for kind, *_ in ERRORS}


def test_read_requests_and_unpadded_middles_are_fine() -> None:
    """The rules that the errors above enforce, met."""
    for transport in (
        frames.bth(0x0C) + RETH,
        frames.bth(1) + b"1234",
        frames.bth(4, flags=0x30) + b"1\0\0\0",
        frames.bth(0x1D) + RETH + b"12345678",
        frames.bth(0x0A) + RETH + b"12345678",
        frames.bth(0x06) + RETH + b"1234",
        frames.bth(0x2A, flags=0x30) + RETH[:12] + b"\0\0\0\1" + b"1\0\0\0",
    ):
        packet = wire.decode(over_v4(transport))
        assert (packet.icrc_ok, packet.error) == (True, None)


# AETH

TIMERS_MS = (
    "655.36 0.01 0.02 0.03 0.04 0.06 0.08 0.12 0.16 0.24 0.32 0.48 0.64 0.96 1.28 1.92 2.56 3.84 "
    "5.12 7.68 10.24 15.36 20.48 30.72 40.96 61.44 81.92 122.88 163.84 245.76 327.68 491.52"
)  # IBA table 45
REASONS = {
    0x60: "PSN sequence error",
    0x61: "invalid request",
    0x62: "remote access error",
    0x63: "remote operational error",
    0x64: "invalid RD request",
}


def aeth(syndrome: int) -> dict[str, Any]:
    transport = frames.bth(0x11) + bytes([syndrome, 0, 0, 9])
    found: dict[str, Any] = wire.decode(over_v4(transport)).to_dict()["aeth"]
    return found


@pytest.mark.parametrize("top", [0, 0x80], ids=["", "reserved bit"])
def test_aeth_kinds(top: int) -> None:
    for value, ms in enumerate(TIMERS_MS.split()):
        low = {"msn": 9, "syndrome": top | value}
        assert aeth(top | value) == {**low, "kind": "ack"}
        low["syndrome"] |= 0x20
        timer_us = round(float(ms) * 1000)
        assert aeth(top | 0x20 | value) == {**low, "kind": "rnr_nak", "timer_us": timer_us}
        low["syndrome"] = top | 0x40 | value
        assert aeth(top | 0x40 | value) == {**low, "kind": "reserved"}
        low["syndrome"] = top | 0x60 | value
        reason = REASONS.get(0x60 | value, "reserved")
        assert aeth(top | 0x60 | value) == {**low, "kind": "nak", "reason": reason}


def test_real_naks() -> None:
    kinds = []
    for frame in captures.frames(captures.capture("rc_rnr")):
        found = wire.decode(frame.data).to_dict().get("aeth")
        if found:
            kinds.append(found["kind"])
    assert sorted(kinds) == ["ack", "nak", "rnr_nak"]
