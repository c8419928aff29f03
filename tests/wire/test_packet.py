# SPDX-License-Identifier: BSD-2-Clause
"""Frames to packets and back: every opcode, every link, every way to be cut."""

from __future__ import annotations

import struct
from ipaddress import ip_address
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


@pytest.mark.parametrize("field", ["dest_qp", "psn"])
def test_fields_of_24_bits_refuse_more(field: str) -> None:
    ends = {"src": "10.0.0.1", "dst": "10.0.0.2"}
    assert wire.encode("RC_SEND_ONLY", **ends, **{field: 0xFFFFFF})
    with pytest.raises(ValueError, match=f"{field} .* 24 bits"):
        wire.encode("RC_SEND_ONLY", **ends, **{field: 0x1000000})
