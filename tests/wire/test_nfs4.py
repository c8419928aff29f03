# SPDX-License-Identifier: BSD-2-Clause
"""The NFSv4 tables: against tshark's own walk over every operation, and their own grammar."""

from __future__ import annotations

import functools
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from shapemaker import cases, make, opaque, word

from captures import tshark
from livedma.wire import nfs, nfsstat
from livedma.wire.rpc import NFS, NFS_CALLBACK
from livedma.wire.shapes import Compiler, skip
from livedma.wire.xdr import Malformed, Reader
from needs import needs

# What tshark 4.0 cannot walk, (operation, direction): checked by hand against RFC 5662 and 7863.
TSHARK_CANNOT = {
    ("OPEN", "call"): "skips no stateid for CLAIM_DELEG_CUR_FH",
    ("OPEN", "reply"): "does not know delegation types 4 and 5 (RFC 9754)",
    ("EXCHANGE_ID", "reply"): "reads the handles of SP4_SSV wrongly",
    ("GET_DIR_DELEGATION", "call"): "not implemented",
    ("GET_DIR_DELEGATION", "reply"): "not implemented",
    ("GETDEVICEINFO", "reply"): "looks into addresses of layout types it does not know",
    ("LAYOUTGET", "reply"): "looks into contents of layout types it does not know",
    ("SET_SSV", "call"): "not implemented",
    ("SET_SSV", "reply"): "not implemented",
    ("WANT_DELEGATION", "call"): "not implemented",
    ("WANT_DELEGATION", "reply"): "not implemented",
    ("WRITE_SAME", "call"): "follows a draft of RFC 7862",
    ("CB_NOTIFY", "call"): "not implemented",
    ("CB_PUSH_DELEG", "call"): "not implemented",
    ("CB_RECALL_ANY", "call"): "not implemented",
    ("CB_RECALLABLE_OBJ_AVAIL", "call"): "not implemented",
    ("CB_RECALL_SLOT", "call"): "not implemented",
    ("CB_WANTS_CANCELLED", "call"): "not implemented",
    ("CB_NOTIFY_DEVICEID", "call"): "not implemented",
}
NO_CHUNKS = nfs.Chunks({}, 0, True)
RENEW, CB_RECALL = 30, 4


def walk(body: bytes, kind: str, program: int) -> tuple[dict[str, Any], int]:
    """What `nfs.decode` says of a COMPOUND body, and the bytes it left."""
    ret: dict[str, Any] = {"type": kind}
    reader = Reader(body)
    nfs.decode(reader, program, 4, 1, ret, nfs.Chunks({}, 0, kind == "call"))
    return ret, reader.left


def compounds() -> list[tuple[int, str, str, int, bytes]]:
    """(program, direction, name, number, body) for every operation and case of its unions."""
    rng = random.Random(8881)
    ret = []
    for program, table in ((NFS, nfs.OPERATIONS), (NFS_CALLBACK, nfs.CALLBACKS)):
        follow = RENEW if program == NFS else CB_RECALL
        for number, (name, arguments, results) in table.items():
            for case in range(3 * cases(arguments)):
                two = word(number) + make(arguments, rng, case) + word(follow)
                two += make(table[follow][1], rng)
                head = opaque(b"tag") + word(2) + (b"" if program == NFS else word(0))
                ret.append((program, "call", name, number, head + word(2) + two))
            for case in range(3 * cases(results)):
                two = word(number) + make(results, rng, case) + word(follow) + word(0)
                ret.append((program, "reply", name, number, word(0) + opaque(b"") + word(2) + two))
    return ret


def test_every_operation_is_walked_to_its_end() -> None:
    for program, kind, name, _, body in compounds():
        ret, left = walk(body, kind, program)
        follow = "RENEW" if program == NFS else "CB_RECALL"
        assert (ret["ops"], left) == ([name, follow], 0)
        assert ret["tag"] == ("tag" if kind == "call" else "")
        assert (kind == "reply") == ("op_status" in ret)


def test_tshark_walks_every_operation_alike(tmp_path: Path) -> None:
    path = tmp_path / "compounds.pcap"
    made = compounds()
    packets, wanted = [], {}
    for xid, (program, kind, name, number, body) in enumerate(made, 1):
        version = 4 if program == NFS else 1
        call = struct.pack(">10I", xid, 0, 2, program, version, 1, 0, 0, 0, 0)
        if kind == "reply":
            ident = b"" if program == NFS else word(0)
            packets.append((0, call + opaque(b"") + word(2) + ident + word(0)))
            packets.append((1, struct.pack(">6I", xid, 1, 0, 0, 0, 0) + body))
        else:
            packets.append((0, call + body))
        wanted[len(packets)] = (name, kind, [number, RENEW if program == NFS else CB_RECALL])
    path.write_bytes(pcap(packets))
    rows = tshark(path, "nfs.opcode", "nfs.cb.operation")
    agree = 0
    for frame, (name, kind, numbers) in wanted.items():
        theirs = [int(n) for n in rows[frame]["nfs.opcode"] + rows[frame]["nfs.cb.operation"]]
        if (name, kind) not in TSHARK_CANNOT and not name.endswith("ILLEGAL"):
            assert theirs == numbers, (name, kind, frame)
        agree += theirs == numbers
    assert agree > 0.8 * len(wanted)


def pcap(packets: list[tuple[int, bytes]]) -> bytes:
    """A capture of RPC over UDP: (direction, message) between port 1021 and port 2049."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for number, (direction, data) in enumerate(packets):
        ports, ends = (1021, 2049), (b"\x0a\0\0\1", b"\x0a\0\0\2")
        if direction:
            ports, ends = ports[::-1], ends[::-1]
        udp = struct.pack(">HHHH", *ports, 8 + len(data), 0) + data
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, *ends)
        frame = bytes(12) + b"\x08\x00" + ip + udp
        out.append(struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame)
    return b"".join(out)


@functools.cache
def tshark_names(field: str) -> dict[int, str]:
    needs(shutil.which("tshark"), "tshark is not installed")
    run = subprocess.run(["tshark", "-G", "values"], capture_output=True, text=True, check=True)
    rows = (line.split("\t") for line in run.stdout.splitlines())
    return {int(row[2], 0): row[3] for row in rows if row[0] == "V" and row[1] == field}


@pytest.mark.slow
def test_operation_names_agree_with_tshark() -> None:
    theirs = tshark_names("nfs.opcode")
    theirs |= {47: "GETDEVICEINFO", 48: "GETDEVICELIST", 56: "WANT_DELEGATION"}  # It abbreviates.
    assert {number: name for number, (name, _, _) in nfs.OPERATIONS.items()} == theirs
    callbacks = tshark_names("nfs.cb.operation")
    assert {number: name for number, (name, _, _) in nfs.CALLBACKS.items()} == callbacks


@pytest.mark.slow
def test_status_names_agree_with_tshark() -> None:
    theirs = tshark_names("nfs.nfsstat4")
    assert len(theirs) > 100
    # DQUOT is 69; 10030 and 10057 have the names of drafts; 10073 is reserved in RFC 8881.
    drafts = {19, 10030, 10057, 10073}
    ours = {number: nfsstat.name4(number) for number in theirs.keys() - drafts}
    assert ours == {number: theirs[number] for number in ours}


def test_nfs3_status_names() -> None:
    assert nfsstat.name3(0) == "NFS3_OK"
    assert nfsstat.name3(10008) == "NFS3ERR_JUKEBOX"
    assert nfsstat.name3(13) == "NFS3ERR_ACCES"
    assert nfsstat.name4(13) == "NFS4ERR_ACCESS"
    assert nfsstat.name4(10096) == "NFS4ERR_XATTR2BIG"
    assert nfsstat.name4(123456) == "123456"


@pytest.mark.parametrize("text", ["[u", "{1: u", "nothing", "u)*", "u & h", "{1: u | 2: h"])
def test_wrong_shapes_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Compiler({}).compile(text)


def test_shape_union_without_default_is_strict() -> None:
    shape = Compiler({}).compile("{1: h | 2,3:}")
    for label, size in ((1, 12), (2, 4), (3, 4)):
        reader = Reader(word(label) + bytes(8))
        skip(reader, shape, NO_CHUNKS.reduced)
        assert reader.pos == size
    with pytest.raises(Malformed, match="no such case: 4 at byte 0"):
        skip(Reader(word(4)), shape, NO_CHUNKS.reduced)


def test_write_data_in_a_read_chunk_is_absent_inline() -> None:
    write = word(38) + bytes(16 + 8 + 4) + word(1001)
    body = opaque(b"") + word(1) + word(2) + write + word(9) + word(1) + word(0)
    position = len(body) - 12
    ret: dict[str, Any] = {"type": "call"}
    reader = Reader(b"head" + body, 4)
    chunks = nfs.Chunks({"read_list": [{"position": position}]}, 4, True)
    nfs.decode(reader, NFS, 4, 1, ret, chunks)
    assert (ret["ops"], reader.left) == (["WRITE", "GETATTR"], 0)
    with pytest.raises(Malformed):
        walk(body, "call", NFS)


def test_second_read_chunk_counts_what_the_first_one_removed() -> None:
    write = word(38) + bytes(16 + 8 + 4) + word(1001)
    body = opaque(b"") + word(1) + word(2) + write + write
    first = 12 + len(write)
    reads = [{"position": first}, {"position": first + 1004 + len(write)}]
    ret: dict[str, Any] = {"type": "call"}
    reader = Reader(body)
    nfs.decode(reader, NFS, 4, 1, ret, nfs.Chunks({"read_list": reads}, 0, True))
    assert (ret["ops"], reader.left) == (["WRITE", "WRITE"], 0)


@pytest.mark.parametrize(("length", "inline"), [(4096, b""), (0, b"four")])
def test_read_data_in_a_write_chunk(length: int, inline: bytes) -> None:
    read = word(25) + word(0) + word(1) + word(length or 4) + inline
    body = word(0) + opaque(b"") + word(2) + read + word(30) + word(0)
    header = {"write_list": [[{"handle": 1, "length": length, "offset": 0}]]}
    ret: dict[str, Any] = {"type": "reply"}
    reader = Reader(body)
    nfs.decode(reader, NFS, 4, 1, ret, nfs.Chunks(header, 0, False))
    assert (ret["ops"], reader.left) == (["READ", "RENEW"], 0)


def test_create_session_tells_program_and_session() -> None:
    channel = bytes(24) + word(1) + word(7)
    call = opaque(b"") + word(1) + word(1) + word(43) + bytes(7) + b"\x05" + bytes(8)
    call += channel + channel + word(0x40001234) + word(0)
    ret, left = walk(call, "call", NFS)
    assert (ret["callback_program"], ret["client_id"], left) == (
        0x40001234,
        "0x0000000000000005",
        0,
    )
    reply = word(0) + opaque(b"") + word(1) + word(43) + word(0) + bytes(range(16)) + bytes(8)
    ret, left = walk(reply + channel + channel, "reply", NFS)
    assert (ret["session"], left) == (bytes(range(16)).hex(), 0)


def test_sequence_of_call_and_callback() -> None:
    session = bytes(range(16))
    numbers = word(9) + word(3) + word(63)
    wanted = {"session": session.hex(), "slot": 3, "highest_slot": 63, "sequence_id": 9}
    call = opaque(b"") + word(1) + word(1) + word(53) + session + numbers + word(0)
    assert walk(call, "call", NFS)[0]["sequence"] == wanted
    call = opaque(b"") + word(1) + word(0) + word(1) + word(11) + session + numbers + word(0) * 2
    assert walk(call, "call", NFS_CALLBACK)[0]["sequence"] == wanted
    failed = word(10052) + opaque(b"") + word(1) + word(53) + word(10052)
    ret, left = walk(failed, "reply", NFS)
    assert (ret["status"], ret["op_status"], left) == (
        "NFS4ERR_BADSESSION",
        ["NFS4ERR_BADSESSION"],
        0,
    )
    assert "sequence" not in ret


@pytest.mark.parametrize(("claim", "size"), [(4, 0), (5, 16), (6, 0)])
def test_claims_by_filehandle(claim: int, size: int) -> None:
    open_ = word(18) + word(0) * 3 + bytes(8) + opaque(b"me") + word(0) + word(claim) + bytes(size)
    ret, left = walk(opaque(b"") + word(1) + word(2) + open_ + word(10), "call", NFS)
    assert (ret["ops"], left) == (["OPEN", "GETFH"], 0)


def test_unknown_operation_is_named_with_its_offset() -> None:
    body = opaque(b"") + word(2) + word(2) + word(24) + word(999)
    ret: dict[str, Any] = {"type": "call"}
    with pytest.raises(Malformed, match="NFSv4 operation 999 at byte 16"):
        nfs.decode(Reader(body), NFS, 4, 1, ret, NO_CHUNKS)
    assert ret["ops"] == ["PUTROOTFH"]
