"""Frames to packets and back: every opcode, every link, every way to be cut or to be wrong."""

from __future__ import annotations

import re
import struct
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import ENDS, fields_of, frame_of, packet_of, payload_of

import captures
import frames
from frames import Extension
from livedma import wire
from livedma.wire import OPCODES, Opcode, Packet

U8, U16 = st.integers(0, 0xFF), st.integers(0, 0xFFFF)
U24, U32 = st.integers(0, 0xFFFFFF), st.integers(0, 0xFFFFFFFF)
U64 = st.integers(0, 2**64 - 1)
HEADERS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "RDETH": ("rdeth", st.fixed_dictionaries({"ee_context": U24})),
    "DETH": ("deth", st.fixed_dictionaries({"qkey": U32, "src_qp": U24})),
    "XRCETH": ("xrceth", st.fixed_dictionaries({"srq": U24})),
    "FETH": (
        "feth",
        st.fixed_dictionaries({"placement": st.integers(0, 15), "selectivity": st.integers(0, 3)}),
    ),
    "RETH": ("reth", st.fixed_dictionaries({"va": U64, "rkey": U32, "length": U32})),
    "ATOMICETH": (
        "atomic",
        st.fixed_dictionaries({"va": U64, "rkey": U32, "swap_add": U64, "compare": U64}),
    ),
    "AETH": ("aeth", st.fixed_dictionaries({"syndrome": U8, "msn": U24})),
    "ATOMICACKETH": ("atomic_ack", st.fixed_dictionaries({"original": U64})),
    "IMMDT": ("imm", U32),
    "IETH": ("ieth", st.fixed_dictionaries({"rkey": U32})),
}
HEADER_KEYS = [key for key, _ in HEADERS.values()]
ADDRESSES = {
    "v4": st.ip_addresses(v=4).map(str),
    "v6": st.ip_addresses(v=6).map(str),
    "roce1": st.ip_addresses(v=6).map(str),
}


def payloads(opcode: Opcode) -> st.SearchStrategy[bytes]:
    if not opcode.may_carry_payload:
        return st.just(b"")
    if opcode.operation == "ATOMIC_WRITE":
        return st.binary(min_size=8, max_size=8)
    if opcode.is_last:
        return st.binary(max_size=70)
    return st.binary(max_size=20).map(lambda data: data * 4)


@st.composite
def given_fields(draw: st.DrawFn, opcode: Opcode, ends: str) -> tuple[dict[str, Any], bytes]:
    payload = draw(payloads(opcode))
    fields = {
        "src": draw(ADDRESSES[ends]),
        "dst": draw(ADDRESSES[ends]),
        "version": "roce1" if ends == "roce1" else "roce2",
        "pkey": draw(U16),
        "dest_qp": draw(U24),
        "psn": draw(U24),
    }
    for flag in ("solicited", "migreq", "fecn", "becn", "ack_req"):
        fields[flag] = draw(st.booleans())
    if ends != "roce1":
        fields["sport"] = draw(U16)
    for header in opcode.headers:
        if header != "CNPETH":
            name, values = HEADERS[header]
            fields[name] = draw(values)
    if opcode.operation == "WRITE" and "RETH" in opcode.headers:
        more = 0 if opcode.is_last else draw(st.integers(1, 2**31))
        fields["reth"]["length"] = len(payload) + more
    return fields, payload


def check_round_trip(
    opcode: Opcode, fields: dict[str, Any], payload: bytes, vlan: tuple[int, ...], **outside: int
) -> None:
    encoded = wire.encode(opcode.name, payload=payload, **fields, **outside)
    version = fields.get("version", "roce2")
    packet = wire.decode(wire.ethernet(encoded, vlan=vlan, version=version))
    assert packet is not None
    assert (packet.icrc_ok, packet.error) == (True, None)
    assert packet.payload == payload
    seen = packet.to_dict()
    assert seen["opcode"] == opcode.code
    assert seen["opcode_name"] == opcode.name
    assert seen["payload_length"] == len(payload)
    assert seen["pad"] == -len(payload) % 4
    assert seen.get("vlan", []) == [tag & 0xFFF for tag in vlan]
    for name, value in fields.items():
        if name in ("src", "dst"):
            assert ip_address(seen[name]) == ip_address(value)
        elif isinstance(value, dict):  # AETH has words next to the numbers.
            assert {key: seen[name][key] for key in value} == value, name
        else:
            assert seen[name] == value, name
    assert not (set(HEADER_KEYS) - set(fields)) & set(seen)
    assert wire.encode(**seen, payload=payload, **outside) == encoded


@pytest.mark.parametrize("tags", [(), (0x2FFF,), (0xE001, 0x0FFE)], ids=["", "VLAN", "QinQ"])
@pytest.mark.parametrize("ends", ENDS)
def test_every_opcode_is_decoded_as_it_was_encoded(ends: str, tags: tuple[int, ...]) -> None:
    for opcode in OPCODES.values():
        payload = payload_of(opcode)
        check_round_trip(opcode, {**ENDS[ends], **fields_of(opcode, payload)}, payload, tags)


@settings(max_examples=400)
@given(st.data(), st.sampled_from(list(OPCODES.values())), st.sampled_from(list(ENDS)))
def test_any_packet_is_decoded_as_it_was_encoded(
    data: st.DataObject, opcode: Opcode, ends: str
) -> None:
    fields, payload = data.draw(given_fields(opcode, ends))
    vlan = data.draw(st.lists(U16, max_size=2).map(tuple))
    outside = {"ip_id": data.draw(U16), "tos": data.draw(U8), "ttl": data.draw(U8)}
    check_round_trip(opcode, fields, payload, vlan, **outside)


@pytest.mark.parametrize("name", captures.names())
def test_real_packets_encode_to_the_same_bytes(name: str) -> None:
    for frame in list(captures.frames(captures.capture(name)))[:200]:
        packet = wire.decode(frame.data)
        assert packet is not None
        ip = frame.data[14:]
        if ip[0] >> 4 == 4:
            outside = {"ip_id": int.from_bytes(ip[4:6], "big"), "tos": ip[1], "ttl": ip[8]}
        else:
            outside = {"tos": (ip[0] << 4 | ip[1] >> 4) & 0xFF, "ttl": ip[7]}
        again = wire.encode(**packet.to_dict(), payload=packet.payload, **outside)
        # Whether UDP has a checksum is the sender's choice, and IPv6's flow label is not told.
        for at in _not_told(ip):
            ip = ip[:at] + again[at : at + 1] + ip[at + 1 :]
        assert again == ip[: len(again)]


def _not_told(ip: bytes) -> list[int]:
    return [26, 27] if ip[0] >> 4 == 4 else [1, 2, 3, 46, 47]


def test_the_encoder_refuses_what_no_packet_can_be() -> None:
    ends = ENDS["v4"]
    for wrong, why in (
        ({"opcode": "RC_ACKNOWLEDGE", "payload": b"x"}, "cannot carry 1 bytes"),
        ({"opcode": "RC_SEND_FIRST", "payload": b"123"}, "cannot carry 3 bytes"),
        ({"opcode": "RC_SEND_ONLY", "payload": bytes(65536)}, "cannot carry 65536 bytes"),
        ({"opcode": 0xFF}, "does not exist"),
        ({"opcode": "RC_SEND_ONLY", "dst": "fe80::1"}, "both be IPv4 or both be IPv6"),
        ({"opcode": "RC_SEND_ONLY", "version": "roce1"}, "RoCEv1 addresses are GIDs"),
    ):
        with pytest.raises(ValueError, match=why):
            wire.encode(**{**ends, **wrong})


# Links


def sll(protocol: int, packet: bytes) -> bytes:
    return struct.pack(">HHH8sH", 0, 1, 6, b"\2\0\0\0\0\1", protocol) + packet


def sll2(protocol: int, packet: bytes) -> bytes:
    return struct.pack(">HHIHBB8s", protocol, 0, 2, 1, 0, 6, b"\2\0\0\0\0\1") + packet


LINKS = {
    "null": (0, lambda _, packet: b"\2\0\0\0" + packet),
    "Ethernet": (1, lambda kind, packet: frames.ethernet(kind, packet)),
    "raw, BSD": (12, lambda _, packet: packet),
    "raw, OpenBSD": (14, lambda _, packet: packet),
    "raw": (101, lambda _, packet: packet),
    "loop": (108, lambda _, packet: b"\0\0\0\2" + packet),
    "cooked": (113, sll),
    "cooked 2": (276, sll2),
}


@pytest.mark.parametrize("link", LINKS)
def test_every_link_type_leads_to_the_same_packet(link: str) -> None:
    number, wrap = LINKS[link]
    opcode = OPCODES[0x0B]
    for ends, ethertype in (("v4", 0x0800), ("v6", 0x86DD), ("roce1", 0x8915)):
        if ends == "roce1" and link not in ("Ethernet", "cooked", "cooked 2"):
            continue
        raw = packet_of(opcode, ends)
        frame = wrap(ethertype, raw)
        packet = wire.decode(frame, link=number)
        assert packet is not None, ends
        assert (packet.icrc_ok, packet.error) == (True, None)
        expected = wire.decode(frame_of(opcode, ends)).to_dict()
        assert packet.to_dict() == {**expected, "length": len(frame)}
        for cut in range(len(frame) - len(raw)):
            assert wire.decode(frame[:cut], link=number) is None


def test_links_of_one_ip_version_and_unknown_ones() -> None:
    four, six = packet_of(OPCODES[4], "v4"), packet_of(OPCODES[4], "v6")
    assert wire.decode(four, link=228).icrc_ok is True
    assert wire.decode(six, link=229).icrc_ok is True
    for link in (2, 105, 127, 147, 65535):
        assert wire.decode(four, link=link) is None


def test_vlan_tags_and_no_more_than_two() -> None:
    opcode = OPCODES[4]
    raw = packet_of(opcode, "v4")
    for types in (["8100"], ["88a8"], ["88a8", "8100"], ["8100", "8100"]):
        tags = b"".join(bytes.fromhex(kind) + b"\x60\x2a" for kind in types)
        packet = wire.decode(frames.ethernet(0x0800, raw, tags))
        assert packet.icrc_ok is True
        assert packet.to_dict()["vlan"] == [0x2A] * len(types)
    assert wire.decode(frames.ethernet(0x0800, raw, b"\x81\0\0\1" * 3)) is None


@pytest.mark.parametrize("length", [0, 1, 4, 5, 18])
def test_ethernet_padding_and_checksum_are_not_payload(length: int) -> None:
    data = b"0123456789abcdefgh"[:length]
    for ends in ENDS:
        version = ENDS[ends].get("version", "roce2")
        raw = wire.encode("RC_SEND_ONLY", payload=data, **ENDS[ends])
        frame = wire.ethernet(raw, version=version)
        for tail in (b"", bytes(max(0, 60 - len(frame))), b"\xff" * 40, b"FCS!"):
            packet = wire.decode(frame + tail)
            assert (packet.icrc_ok, packet.error) == (True, None)
            assert packet.payload == data
            assert packet.length == len(frame + tail)


def test_ip_options_and_extension_headers_are_passed_over() -> None:
    transport = frames.bth(4, psn=77) + b"payload!"
    hop = Extension(0, b"\x05\x02\0\0\x01\0")
    routing = Extension(43, b"\x04\0\0\0\0\0" + bytes(8))
    atomic_fragment = Extension(44, b"\0\0\1\2\3\4")
    authentication = Extension(51, bytes(22))
    destination = Extension(60, bytes(6))
    mobility = Extension(135, bytes(6))
    chains = [
        (hop,),
        (hop, routing, destination),
        (atomic_fragment,),
        (authentication,),
        (hop, atomic_fragment, authentication, mobility),
        (Extension(60, bytes(254)),),  # the longest chain there may be: 256 bytes
    ]
    made = [frames.v4(transport, options=bytes([1]) * 4 * words) for words in range(11)]
    made += [frames.v6(transport, extensions=chain) for chain in chains]
    for packet in made:
        decoded = wire.decode(frames.roce2(packet))
        assert (decoded.icrc_ok, decoded.error) == (True, None)
        assert (decoded.psn, decoded.payload) == (77, b"payload!")
    too_long = frames.v6(transport, extensions=(Extension(60, bytes(254)), destination))
    assert wire.decode(frames.roce2(too_long)) is None


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        bytes(13),
        frames.ethernet(0x0806, bytes(28)),
        frames.ethernet(0x0800, bytes(19)),
        frames.roce2(frames.v4(frames.bth(4), dport=53)),
        frames.roce2(frames.v6(frames.bth(4), dport=4790)),
        frames.roce2(frames.v4(frames.bth(4), dport=80, sport=4791)),
        frames.roce2(frames.v4(frames.bth(4)).replace(b"\x40\x11", b"\x40\x06", 1)),
    ],
    ids=["empty", "short", "ARP", "IP", "DNS", "other port", "from 4791", "TCP"],
)
def test_other_traffic_is_not_roce(frame: bytes) -> None:
    assert wire.decode(frame) is None


# Cut packets

CUT = {
    "write with immediate": (OPCODES[0x0B], {}),
    "atomic": (OPCODES[0x13], {}),
    "atomic acknowledge": (OPCODES[0x12], {}),
    "datagram": (OPCODES[0x65], {}),
    "reliable datagram": (OPCODES[0x4B], {}),
    "extended": (OPCODES[0xB7], {}),
    "flush": (OPCODES[0x1C], {}),
    "congestion": (OPCODES[0x81], {}),
}
NOT_CONSTANT = ("length", "error", "icrc", "icrc_ok")


def assert_nothing_wrong(cut: Packet, whole: Packet) -> None:
    """What a cut packet tells is what the whole one tells."""
    told, truth = cut.to_dict(), whole.to_dict()
    for key in set(told) - set(NOT_CONSTANT) - {"sport", "dport"}:
        assert told[key] == truth[key], key
    for key in ("sport", "dport", "icrc"):
        assert told[key] in (None, truth[key])
    assert whole.payload.startswith(cut.payload)


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("ends", ENDS)
def test_cut_by_the_capture_at_every_length(ends: str, name: str) -> None:
    opcode, more = CUT[name]
    frame = frame_of(opcode, ends, (5,), **more)
    whole = wire.decode(frame)
    start = 18 if ends == "roce1" else 18 + len(packet_of(opcode, ends)) - _transport(opcode)
    for length in range(len(frame)):
        packet = wire.decode(frame[:length], length=len(frame))
        if packet is None:
            assert length < start
            continue
        assert length >= start
        assert packet.icrc_ok is None
        assert "cut short" in packet.error
        assert packet.length == len(frame)
        assert_nothing_wrong(packet, whole)
    assert wire.decode(frame, length=len(frame)).error is None


def _transport(opcode: Opcode) -> int:
    """Bytes from the BTH on."""
    payload = payload_of(opcode)
    headers = sum(wire.HEADER_BYTES[header] for header in opcode.headers)
    return 12 + headers + len(payload) + -len(payload) % 4 + 4


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("ends", ENDS)
def test_cut_on_the_wire_at_every_length(ends: str, name: str) -> None:
    """The file says that this was all: the frame contradicts its own headers."""
    opcode, more = CUT[name]
    frame = frame_of(opcode, ends, **more)
    whole = wire.decode(frame)
    start = 14 if ends == "roce1" else 14 + len(packet_of(opcode, ends)) - _transport(opcode)
    for length in range(len(frame)):
        packet = wire.decode(frame[:length])
        if packet is None:
            assert length < start
            continue
        assert length >= start
        assert packet.icrc_ok is False
        assert packet.error
        assert int(packet.error.rpartition("at byte ")[2]) <= length
        assert_nothing_wrong(packet, whole)


def test_cut_behind_the_icrc_it_is_still_verified() -> None:
    """Only the Ethernet padding is missing: nothing of the packet is."""
    raw = wire.encode("RC_SEND_ONLY", **ENDS["v4"])
    frame = wire.ethernet(raw) + bytes(2)
    packet = wire.decode(frame[:-1], length=len(frame))
    assert (packet.icrc_ok, packet.error) == (True, None)
    broken = frame[:-4] + b"\x55" + frame[-3:-1]
    packet = wire.decode(broken, length=len(frame))
    assert (packet.icrc_ok, packet.error) == (False, None)


def test_real_packets_cut_by_a_snap_length() -> None:
    for name in ("rping_rc", "rping_v6", "rc_badkey"):
        for frame in list(captures.frames(captures.capture(name)))[:30]:
            whole = wire.decode(frame.data)
            for length in (*range(42, 110), 128, 256, len(frame.data) - 1):
                if length >= len(frame.data):
                    continue
                cut = wire.decode(frame.data[:length], length=len(frame.data))
                if cut is not None:
                    assert cut.icrc_ok is None
                    assert_nothing_wrong(cut, whole)


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
    header = Path(__file__).resolve().parents[2] / "core" / "packet.h"
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


@pytest.mark.parametrize("field", ["dest_qp", "psn"])
def test_fields_of_24_bits_refuse_more(field: str) -> None:
    ends = {"src": "10.0.0.1", "dst": "10.0.0.2"}
    assert wire.encode("RC_SEND_ONLY", **ends, **{field: 0xFFFFFF})
    with pytest.raises(ValueError, match=f"{field} .* 24 bits"):
        wire.encode("RC_SEND_ONLY", **ends, **{field: 0x1000000})
