# SPDX-License-Identifier: BSD-2-Clause
"""Packets as JSON, as text and as the kernel's structures."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from packets import ENDS, HEADERS, fields_of, frame_of, payload_of

import captures
import frames
from livedma import wire
from livedma.capture.files import read
from livedma.capture.sinks import open_sink
from livedma.wire import OPCODES, Batch, Opcode
from livedma.wire.listing import listing

ALWAYS = [
    "n",
    "time_ns",
    "length",
    "src",
    "dst",
    "sport",
    "dport",
    "version",
    "opcode",
    "opcode_name",
    "solicited",
    "migreq",
    "pad",
    "pkey",
    "fecn",
    "becn",
    "dest_qp",
    "ack_req",
    "psn",
    "payload_length",
    "icrc",
    "icrc_ok",
]
INSIDE = {"cm", "mad", "rpcrdma", "rpc", "nvme"}
ESCAPE = re.compile(rb"\x1b\[[0-9;]*m")


def batch_of(*made: bytes, link: int = 1, lengths: dict[int, int] | None = None) -> Batch:
    batch = Batch(len(made) + 1, sum(map(len, made)) + 1)
    for number, frame in enumerate(made):
        length = (lengths or {}).get(number, len(frame))
        assert batch.add(link, 1000 * number, 0, frame, length)
    return batch


def through(kind: str, batch: Batch, color: bool = False) -> bytes:
    out = io.BytesIO()
    sink = open_sink(kind, out, color=color)
    sink.write(batch)
    sink.close()
    return out.getvalue()


def objects(batch: Batch) -> list[dict[str, Any]]:
    return [json.loads(line) for line in through("json", batch).splitlines()]


def no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(set(keys)) == len(keys), f"a key twice: {keys}"
    return dict(pairs)


# JSON


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda opcode: opcode.name)
def test_json_has_the_keys_it_promises_and_no_others(opcode: Opcode, ends: str) -> None:
    (seen,) = objects(batch_of(frame_of(opcode, ends)))
    payload = payload_of(opcode)
    headers = {HEADERS[header][0] for header in opcode.headers if header != "CNPETH"}
    assert set(seen) - INSIDE == set(ALWAYS) | headers
    assert [key for key in seen if key in ALWAYS] == ALWAYS
    assert seen["n"] == 1
    assert seen["version"] == ("roce1" if ends == "roce1" else "roce2")
    assert seen["dport"] == (None if ends == "roce1" else 4791)
    assert (seen["src"], seen["dst"]) == (ENDS[ends]["src"], ENDS[ends]["dst"])
    assert seen["opcode_name"] == opcode.name
    assert (seen["dest_qp"], seen["psn"], seen["ack_req"]) == (0x123456, 0xABCDEF, True)
    assert seen["icrc_ok"] is True
    for name, value in fields_of(opcode, payload).items():
        expected = {**value, "kind": "ack"} if name == "aeth" else value
        assert seen[name] == expected


def test_json_types_are_plain() -> None:
    (seen,) = objects(batch_of(frame_of(OPCODES[0x0B], "v4", (7,))))
    for key, value in seen.items():
        wanted: type = int
        if key in ("src", "dst", "version", "opcode_name"):
            wanted = str
        elif key in ("solicited", "migreq", "fecn", "becn", "ack_req", "icrc_ok"):
            wanted = bool
        elif key == "vlan":
            wanted = list
        elif key == "reth":
            wanted = dict
        assert type(value) is wanted, key


def test_json_flags_are_told_apart() -> None:
    flags = ("solicited", "migreq", "fecn", "becn", "ack_req")
    for flag in flags:
        fields = {other: other == flag for other in flags}
        (seen,) = objects(batch_of(frame_of(OPCODES[4], "v4", **fields)))
        assert {key: seen[key] for key in flags} == fields


def test_json_numbers_packets_across_batches() -> None:
    out = io.BytesIO()
    sink = open_sink("json", out)
    for count in (3, 1, 2):
        sink.write(batch_of(*[frame_of(OPCODES[4], "v4")] * count))
    sink.close()
    assert [json.loads(line)["n"] for line in out.getvalue().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_json_direction_and_late_times() -> None:
    batch = Batch(2, 4096)
    frame = frame_of(OPCODES[4], "v4")
    batch.add(1, 2**63, 1, frame, len(frame))
    batch.add(1, 2**64 - 1, 2, frame, len(frame))
    first, second = objects(batch)
    assert (first["direction"], first["time_ns"]) == ("rx", 2**63)
    assert (second["direction"], second["time_ns"]) == ("tx", 2**64 - 1)


@pytest.mark.parametrize("name", captures.names())
def test_json_of_real_traffic_is_valid(name: str) -> None:
    out = io.BytesIO()
    sink = open_sink("json", out)
    with read(captures.capture(name)) as file:
        for batch in file:
            sink.write(batch)
    sink.close()
    for number, line in enumerate(out.getvalue().splitlines(), 1):
        seen = json.loads(line, object_pairs_hook=no_repeats)
        assert seen["n"] == number
        assert set(ALWAYS) <= set(seen)


CM_REQ = next(
    frame.data
    for frame in captures.frames(captures.BUNDLED / "rping_rc.pcap")
    if wire.decode(frame.data).dest_qp == 1
)
RPC_CALL = bytes.fromhex("00000007 00000001 00000020 00000000 00000000 00000000 00000000") + (
    bytes.fromhex("00000007 00000000 00000002 000186a3 00000004 00000001") + bytes(16)
)


def broken_frames() -> st.SearchStrategy[bytes]:
    """Frames that start well and go wrong anywhere."""
    good = [frame_of(opcode, ends) for opcode in OPCODES.values() for ends in ENDS]
    good += [CM_REQ, frames.roce2(frames.v4(frames.bth(4) + RPC_CALL))]

    @st.composite
    def broken(draw: st.DrawFn) -> bytes:
        frame = bytearray(draw(st.sampled_from(good)))
        for _ in range(draw(st.integers(0, 6))):
            frame[draw(st.integers(12, len(frame) - 1))] = draw(st.integers(0, 255))
        return bytes(frame[: draw(st.integers(0, len(frame)))]) + draw(st.binary(max_size=20))

    return broken()


@settings(max_examples=300)
@given(
    st.lists(st.one_of(broken_frames(), st.binary(max_size=200)), min_size=1, max_size=8),
    st.sampled_from([0, 1, 101, 113, 276]),
    st.integers(0, 300),
)
@example([frames.ethernet(0x8915, b"")], 1, 0)
def test_whatever_comes_every_format_is_well_formed(
    made: list[bytes], link: int, more: int
) -> None:
    """`more` bytes were on the wire and not captured."""
    batch = batch_of(*made, link=link, lengths={i: len(f) + more for i, f in enumerate(made)})
    assert len(batch) + batch.other == len(made)
    lines = through("json", batch).splitlines()
    assert len(lines) == len(batch)
    for line in lines:
        assert line.isascii()
        seen = json.loads(line, object_pairs_hook=no_repeats)
        if "opcode" not in seen or "payload_length" not in seen:
            assert seen["error"]
        if seen.get("error"):
            assert re.search(r", at byte \d+$", seen["error"])
        if more and seen["icrc_ok"]:
            assert seen["icrc"] is not None
    text = through("text", batch)
    assert text.count(b"\n") == len(batch)
    assert text.isascii()
    assert not re.search(rb"[\0-\x09\x0b-\x1f\x7f]", text)
    assert ESCAPE.sub(b"", through("text", batch, color=True)) == text
    blocks = through("struct", batch)
    assert blocks.count(b"\n\n") == len(batch)
    assert blocks.isascii()
    assert not re.search(rb"[\0-\x09\x0b-\x1f\x7f]", blocks)


def test_what_is_inside_joins_the_object() -> None:
    (seen,) = objects(batch_of(CM_REQ))
    assert seen["cm"]["attribute"] == "REQ"
    (seen,) = objects(batch_of(frames.roce2(frames.v4(frames.bth(4) + RPC_CALL))))
    assert (seen["rpcrdma"]["xid"], seen["rpcrdma"]["credits"]) == (7, 32)
    assert seen["rpc"]["procedure"] == 1


def test_long_fragments_find_room() -> None:
    """Lines are printed into a buffer that is sized before: a long one must not outgrow it."""
    batch = batch_of(*[frame_of(OPCODES[4], "v6")] * 50)
    fragment = b'"x":"' + b"y" * 100_000 + b'"'
    inside = dict.fromkeys((0, 7, 49), fragment)
    lines = batch.json(1, inside).splitlines()
    assert [len(json.loads(line).get("x", "")) for line in lines] == [
        100_000 if index in inside else 0 for index in range(50)
    ]
    lines = batch.text(dict.fromkeys(inside, b"z" * 100_000), True, 0).splitlines()
    assert [b"z" * 100_000 in line for line in lines] == [index in inside for index in range(50)]


# Text


def line_of(frame: bytes, color: bool = False, length: int | None = None) -> str:
    lengths = None if length is None else {0: length}
    return through("text", batch_of(frame, lengths=lengths), color).decode().rstrip("\n")


def test_text_says_what_matters() -> None:
    line = line_of(frame_of(OPCODES[0x0A], "v4", fecn=True, solicited=True))
    for part in (
        "10.1.2.3 > 10.4.5.6",
        "qp 0x123456",
        "RC WRITE ONLY",
        "psn 11259375",
        "10 B",
        "ackreq",
        "solicited",
        "fecn",
        "va 0x1122334455667788 rkey 0x99aabbcc len 10",
        "icrc ok",
    ):
        assert f" {part}" in line, part


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        (0x11, ["RC ACK", "msn 658188"]),
        (0x13, ["RC COMPARE SWAP", "swap 0x102030405060708 compare 0xf1f2f3f4f5f6f7f8"]),
        (0x14, ["RC FETCH ADD", "add 0x102030405060708"]),
        (0x12, ["RC ATOMIC ACK", "was 0xdeadbeef00c0ffee"]),
        (0x17, ["RC SEND ONLY+INV", "invalidates 0x55667788"]),
        (0x05, ["RC SEND ONLY+IMM", "imm 0x01020304"]),
        (0x1C, ["RC FLUSH", "feth 0x12"]),
        (0x65, ["UD SEND ONLY+IMM", "from qp 0x0c0d0e"]),
        (0x44, ["RD SEND ONLY", "eec 0xa1b2c3"]),
        (0xA4, ["XRC SEND ONLY", "srq 0x112233"]),
        (0x81, ["CNP"]),
    ],
)
def test_text_shows_every_header(code: int, parts: list[str]) -> None:
    for ends in ENDS:
        line = line_of(frame_of(OPCODES[code], ends, (9,)))
        for part in [*parts, "vlan 9", "icrc ok"]:
            assert f" {part}" in line
        assert ("RoCEv1" in line) == (ends == "roce1")


def test_text_of_trouble() -> None:
    nak = frame_of(OPCODES[0x11], "v4", aeth={"syndrome": 0x62, "msn": 1})
    rnr = frame_of(OPCODES[0x11], "v4", aeth={"syndrome": 0x2E, "msn": 1})
    assert "NAK remote access error" in line_of(nak)
    assert "RNR NAK wait 1280 us" in line_of(rnr)
    assert "ICRC BAD" in line_of(nak[:-1] + bytes([nak[-1] ^ 1]))
    cut = line_of(nak[:-5], length=len(nak))
    assert "cut short" in cut
    assert "icrc" not in cut.lower()
    unknown = frames.roce2(frames.v4(frames.bth(0x1F)))
    assert "opcode 0x1f" in line_of(unknown)
    assert "! BTH has unknown opcode 0x1f, at byte 42" in line_of(unknown)


def test_text_is_coloured_only_when_asked() -> None:
    nak = frame_of(OPCODES[0x11], "v4", aeth={"syndrome": 0x62, "msn": 1})
    for frame in (nak, CM_REQ, frame_of(OPCODES[0x81], "v6")):
        plain, coloured = line_of(frame), line_of(frame, color=True)
        assert "\x1b" not in plain
        assert "\x1b[" in coloured
        assert ESCAPE.sub(b"", coloured.encode()).decode() == plain
        assert coloured.endswith("\x1b[0m")
    assert "\x1b[1;31m" in line_of(nak, color=True)  # a NAK is red


def test_text_times_are_relative_to_the_first_packet() -> None:
    batch = Batch(4, 4096)
    frame = frame_of(OPCODES[4], "v4")
    for time_ns in (5_000_000_000, 5_000_001_999, 3_500_000_000, 5_000_000_000 + 86_400 * 10**9):
        batch.add(1, time_ns, 0, frame, len(frame))
    times = [line.split()[0] for line in through("text", batch).decode().splitlines()]
    assert times == ["0.000000", "0.000001", "-1.500000", "86400.000000"]


# The kernel's structures


def test_struct_listing() -> None:
    data = b'plain "text"\n\\\x00\xff'
    frame = wire.ethernet(
        wire.encode(
            "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE",
            **ENDS["v4"],
            sport=50000,
            dest_qp=0x11,
            psn=0x22,
            ack_req=True,
            solicited=True,
            reth={"va": 0x7F0000001000, "rkey": 0x1FF, "length": len(data)},
            imm=0xCAFE,
            payload=data,
        )
    )
    packet = wire.decode(frame)
    icrc = packet.to_dict()["icrc"]
    assert listing(packet) == (
        f"""packet length: {len(frame)} bytes
struct iphdr {{
    __be32 saddr; 10.1.2.3
    __be32 daddr; 10.4.5.6
}};
struct udphdr {{
    __be16 source; 50000
    __be16 dest; 4791
    __be16 len; {len(frame) - 34}
    __sum16 check; 0x0
}};
IB_OPCODE_RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE
struct rxe_bth {{
    __u8 opcode; 0xb
    __u8 flags; {0xC0 | (-len(data) % 4) << 4:#x} (solicited, migreq)
    __be16 pkey; 0xffff
    __be32 qpn; 0x11
    __be32 apsn; 0x22 (ack_req)
}};
RXE_RETH
struct rxe_reth {{
    __be64 va; 0x7f0000001000
    __be32 rkey; 0x1ff
    __be32 len; {len(data)}
}};
RXE_IMMDT
struct rxe_immdt {{
    __be32 imm; 0xcafe
}};
RXE_PAYLOAD
plain "text"\\x0a\\x5c\\x00\\xff
ICRC {icrc:#x} ok

"""
    )


RXE = {
    "RDETH": ("RXE_RDETH", "een; 0xa1b2c3"),
    "DETH": ("RXE_DETH", "qkey; 0x80010000\n    __be32 sqp; 0xc0d0e"),
    "XRCETH": ("RXE_XRCETH", "srqn; 0x112233"),
    "FETH": ("RXE_FETH", "bits; 0x12"),
    "RETH": ("RXE_RETH", "va; 0x1122334455667788\n    __be32 rkey; 0x99aabbcc"),
    "ATOMICETH": (
        "RXE_ATMETH",
        "va; 0x8877665544332211\n    __be32 rkey; 0xccbbaa99\n"
        "    __be64 swap_add; 0x102030405060708\n    __be64 comp; 0xf1f2f3f4f5f6f7f8",
    ),
    "AETH": ("RXE_AETH", "smsn; 0x1f0a0b0c (ack, msn 658188)"),
    "ATOMICACKETH": ("RXE_ATMACK", "orig; 0xdeadbeef00c0ffee"),
    "IMMDT": ("RXE_IMMDT", "imm; 0x1020304"),
    "IETH": ("RXE_IETH", "rkey; 0x55667788"),
}


@pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda opcode: opcode.name)
def test_struct_listing_has_every_header_in_wire_order(opcode: Opcode) -> None:
    for ends, network in (("v4", "iphdr"), ("v6", "ipv6hdr"), ("roce1", "ib_grh")):
        text = listing(wire.decode(frame_of(opcode, ends)))
        assert f"struct {network} {{\n" in text
        assert ("struct udphdr" in text) == (ends != "roce1")
        assert f"\nIB_OPCODE_{opcode.name}\nstruct rxe_bth {{\n" in text
        found = re.findall(r"^RXE_\w+$", text, re.MULTILINE)
        expected = [RXE[header][0] for header in opcode.headers if header != "CNPETH"]
        assert found == expected + ["RXE_PAYLOAD"] * bool(payload_of(opcode))
        for header in opcode.headers:
            if header != "CNPETH":
                assert RXE[header][1] in text
        assert re.search(r"\nICRC 0x[0-9a-f]+ ok\n\n$", text)


def test_struct_listing_of_trouble() -> None:
    frame = frame_of(OPCODES[0x0A], "v4")
    cut = listing(wire.decode(frame[:50], length=len(frame)))
    assert "error: BTH cut short: needs 12 bytes, 8 there, at byte 42\n\n" in cut
    assert "ICRC" not in cut
    bad = listing(wire.decode(frame[:-1] + bytes([frame[-1] ^ 1])))
    assert re.search(r"\nICRC 0x[0-9a-f]+ BAD\n\n$", bad)
    unknown = listing(wire.decode(frames.roce2(frames.v4(frames.bth(0x1F)))))
    assert "\nunknown opcode 0x1f\nstruct rxe_bth {\n" in unknown
    nak = frame_of(OPCODES[0x11], "v4", aeth={"syndrome": 0x60, "msn": 3})
    assert "smsn; 0x60000003 (nak: PSN sequence error, msn 3)" in listing(wire.decode(nak))
    rnr = frame_of(OPCODES[0x11], "v4", aeth={"syndrome": 0x21, "msn": 3})
    assert "(rnr_nak: 10 us, msn 3)" in listing(wire.decode(rnr))
