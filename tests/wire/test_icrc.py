# SPDX-License-Identifier: BSD-2-Clause
"""The invariant CRC: scapy's vectors, a second implementation, and what a flipped bit does."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import frames
from captures import capture
from captures import frames as frames_of
from frames import Extension
from livedma import wire

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from scapy.all import IP, UDP, Ether, IPv6, Raw
    from scapy.contrib.roce import AETH, BTH, cnp

# scapy's own test packets: an example UC SEND, and a CNP from a ConnectX-4 Lx.
UC_SEND = (
    "248a07a8fa22 248a07a8fa22 0800 4501004004784000 4011b4d5c0a80007c0a80007 c00012b7002caca2"
    "2460ffff000000d300cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3"
)
CONNECTX_CNP = (
    "e41d2dab2bc2 7cfe90643b32 0800 45c2003c718c4000 401191610a0011010a001201 000012b700280000"
    "8100ffff4000011800000000 00000000000000000000000000000000 82fd002a"
)


@pytest.mark.parametrize(("text", "opcode"), [(UC_SEND, "UC_SEND_ONLY"), (CONNECTX_CNP, "CNP")])
def test_scapys_vectors_hold(text: str, opcode: str) -> None:
    frame = bytes.fromhex(text)
    packet = wire.decode(frame)
    assert packet is not None
    assert (packet.opcode_name, packet.icrc_ok, packet.error) == (opcode, True, None)
    assert packet.to_dict()["icrc"] == int.from_bytes(frame[-4:], "little")


@settings(max_examples=60)
@given(
    st.booleans(),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 0xFFFF),
    st.binary(max_size=300),
)
def test_scapys_computation_agrees(
    is_v6: bool, tos: int, ttl: int, ident: int, data: bytes
) -> None:
    data = data[: len(data) // 4 * 4]
    ip = IPv6(tc=tos, hlim=ttl, fl=ident) if is_v6 else IP(tos=tos, ttl=ttl, id=ident)
    start = Ether() / ip / UDP(sport=ident, dport=4791)
    for built in (
        start / BTH(opcode=4, dqpn=17, psn=ident, fecn=tos & 1) / Raw(data),
        start / BTH(opcode=0x11, dqpn=17) / AETH(syndrome=0x1F, msn=ident),
        start / cnp(17),
    ):
        packet = wire.decode(bytes(built))
        assert packet is not None
        assert packet.icrc_ok is True, packet.to_dict()


TRANSPORTS = st.builds(
    lambda opcode, byte4, qp, ack, psn, words: (
        frames.bth(opcode, byte4=byte4, dest_qp=qp, ack=ack, psn=psn) + words * 4
    ),
    st.sampled_from([0x00, 0x01, 0x02, 0x04, 0x07, 0x20]),
    st.integers(0, 255),
    st.integers(0, 0xFFFFFF),
    st.integers(0, 1),
    st.integers(0, 0xFFFFFF),
    st.binary(max_size=600),
)
BYTE = st.integers(0, 255)
ADDRESS6 = st.ip_addresses(v=6).map(str)
EXTENSIONS = st.lists(
    st.one_of(
        st.builds(
            lambda number, units, fill: Extension(number, (fill * 62)[: 8 * units + 6]),
            st.sampled_from([0, 43, 60, 135]),
            st.integers(0, 6),
            st.binary(min_size=1, max_size=4),
        ),
        st.builds(lambda ident: Extension(44, b"\0\0" + ident), st.binary(min_size=4, max_size=4)),
        st.builds(
            lambda units, fill: Extension(51, (fill * 62)[: 4 * units + 6]),
            st.integers(1, 10),
            st.binary(min_size=1, max_size=4),
        ),
    ),
    max_size=4,
).map(tuple)
V4 = st.builds(
    frames.v4,
    TRANSPORTS,
    src=st.ip_addresses(v=4).map(str),
    dst=st.ip_addresses(v=4).map(str),
    tos=BYTE,
    ttl=BYTE,
    ident=st.integers(0, 0xFFFF),
    flags=st.sampled_from([0, 0x4000, 0x8000]),
    options=st.integers(0, 10).flatmap(lambda n: st.binary(min_size=4 * n, max_size=4 * n)),
    sport=st.integers(0, 0xFFFF),
    checksum=st.integers(0, 0xFFFF),
)
V6 = st.builds(
    frames.v6,
    TRANSPORTS,
    src=ADDRESS6,
    dst=ADDRESS6,
    tos=BYTE,
    flow=st.integers(0, 0xFFFFF),
    ttl=BYTE,
    extensions=EXTENSIONS,
    sport=st.integers(0, 0xFFFF),
    checksum=st.integers(0, 0xFFFF),
)
GRH = st.builds(
    frames.grh,
    TRANSPORTS,
    src=ADDRESS6,
    dst=ADDRESS6,
    tos=BYTE,
    flow=st.integers(0, 0xFFFFF),
    ttl=BYTE,
)


@pytest.mark.parametrize(
    ("packets", "ethertype"), [(V4, 0x0800), (V6, 0x86DD), (GRH, 0x8915)], ids=["v4", "v6", "grh"]
)
def test_a_second_implementation_agrees(packets: st.SearchStrategy[bytes], ethertype: int) -> None:
    @settings(max_examples=150)
    @given(packets, st.data())
    def check(packet: bytes, data: st.DataObject) -> None:
        decoded = wire.decode(frames.ethernet(ethertype, packet))
        assert decoded is not None
        assert decoded.icrc_ok is True, decoded.to_dict()
        assert decoded.error is None
        wrong = data.draw(st.integers(1, 0xFFFFFFFF))
        stored = int.from_bytes(packet[-4:], "little") ^ wrong
        decoded = wire.decode(
            frames.ethernet(ethertype, packet[:-4] + stored.to_bytes(4, "little"))
        )
        assert decoded is not None
        assert decoded.icrc_ok is False

    check()


def test_every_size_around_the_copied_head_agrees() -> None:
    """Short packets are summed in one piece, long ones in two: no seam may show."""
    for words in range(80):
        transport = frames.bth(4) + bytes(range(160)) * 2
        transport = transport[: frames.BTH + 4 * words]
        for packet in (frames.v4(transport), frames.v6(transport), frames.grh(transport)):
            kind = 0x8915 if packet[6] == 0x1B else 0x0800 if packet[0] >> 4 == 4 else 0x86DD
            decoded = wire.decode(frames.ethernet(kind, packet))
            assert decoded is not None
            assert decoded.icrc_ok is True, words


def _variant(frame: bytes, kind: str) -> set[int]:
    """The bits that the ICRC does not cover, as 8 * byte + bit (0: the most significant)."""
    if kind == "v4":
        header = 4 * (frame[14] & 15)
        whole = [15, 22, 24, 25, 14 + header + 6, 14 + header + 7, 14 + header + 8 + 4]
        return {8 * at + bit for at in whole for bit in range(8)}
    bth = 14 + 40 + (8 if kind == "v6" else 0)
    whole = [15, 16, 17, 21, bth + 4] + ([bth - 2, bth - 1] if kind == "v6" else [])
    low_nibble = {8 * 14 + bit for bit in range(4, 8)}
    return low_nibble | {8 * at + bit for at in whole for bit in range(8)}


def _real(name: str, wanted: Callable[[wire.Packet], bool]) -> bytes:
    for frame in frames_of(capture(name)):
        packet = wire.decode(frame.data)
        if packet is not None and wanted(packet):
            return frame.data
    raise AssertionError(f"{name} has no such packet")


def _opcode(name: str) -> Callable[[wire.Packet], bool]:
    return lambda packet: packet.opcode_name == name


# Real packets, and one each of what the captures do not hold: name -> (kind, its frame).
FLIPPED = {
    "ack": ("v4", lambda: _real("rc_rnr", _opcode("RC_ACKNOWLEDGE"))),
    "send": ("v4", lambda: _real("rping_rc", _opcode("RC_SEND_ONLY"))),
    "write": ("v4", lambda: _real("rping_rc", _opcode("RC_RDMA_WRITE_ONLY"))),
    "read": ("v4", lambda: _real("rping_rc", _opcode("RC_RDMA_READ_REQUEST"))),
    "cm": ("v4", lambda: _real("rping_rc", _opcode("UD_SEND_ONLY"))),
    "atomic": ("v4", lambda: _real("loss_atomic_response", _opcode("RC_FETCH_ADD"))),
    "atomic ack": ("v4", lambda: _real("loss_atomic_response", _opcode("RC_ATOMIC_ACKNOWLEDGE"))),
    "1 KiB": ("v4", lambda: _real("rc_badkey", _opcode("RC_RDMA_WRITE_FIRST"))),
    "padded": ("v4", lambda: _real("host_userspace_rc", lambda p: bool(p.bth_flags & 0x30))),
    "v6 ack": ("v6", lambda: _real("rping_v6", _opcode("RC_ACKNOWLEDGE"))),
    "v6 send": ("v6", lambda: _real("rping_v6", _opcode("RC_SEND_ONLY"))),
    "v6 read response": ("v6", lambda: _real("rping_v6", _opcode("RC_RDMA_READ_RESPONSE_ONLY"))),
    "options": (
        "v4",
        lambda: frames.roce2(frames.v4(frames.bth(4) + b"payload.", options=b"\x94\x04\0\0" * 3)),
    ),
    "roce1": ("grh", lambda: frames.ethernet(0x8915, frames.grh(frames.bth(4) + b"payload."))),
}


@pytest.mark.parametrize("name", FLIPPED)
def test_one_flipped_bit_is_seen_wherever_it_is_covered(name: str) -> None:
    kind, make = FLIPPED[name]
    frame = make()
    whole = wire.decode(frame)
    assert whole is not None
    assert whole.icrc_ok is True
    variant = _variant(frame, kind)
    lost = 0
    for bit in range(8 * 14, 8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 0x80 >> bit % 8
        packet = wire.decode(bytes(flipped))
        if bit in variant:
            assert packet is not None, bit
            assert packet.icrc_ok is True, bit
        elif packet is None:
            lost += 1
        else:
            assert packet.icrc_ok is False, (bit, packet.to_dict())
    # Protocol, port and header length say that it is RoCE at all; all else must stay visible.
    assert lost <= (0 if kind == "grh" else 16 + 8 + 4)


def test_two_flipped_bits_of_a_small_packet_are_seen() -> None:
    """CRC-32 has a distance of 4 at this size."""
    frame = FLIPPED["ack"][1]()
    start = 8 * (14 + 20 + 8 + 5)
    for first in range(start, 8 * len(frame)):
        for second in range(start, first):
            flipped = bytearray(frame)
            for bit in (first, second):
                flipped[bit // 8] ^= 0x80 >> bit % 8
            packet = wire.decode(bytes(flipped))
            assert packet is not None
            assert packet.icrc_ok is False, (first, second)
