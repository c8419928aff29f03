# SPDX-License-Identifier: BSD-2-Clause
"""`Inside`: state, heuristics, multi-packet messages, callbacks, NVMe, bounds, and fuzz."""

from __future__ import annotations

import functools
import json
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpcrdma_bytes import encode
from shapemaker import opaque, word

from captures import Packet, capture, packets
from livedma.wire import cm, inside, nvme, private
from livedma.wire.inside import Inside, brief

CLIENT, SERVER = "10.0.0.1", "10.0.0.2"
FIRST, ONLY, ONLY_INV, UD = 0x00, 0x04, 0x17, 0x64


def packet(payload: bytes, to_server: bool = True, opcode: int = ONLY, qp: int = 17) -> Packet:
    ends = (CLIENT, SERVER) if to_server else (SERVER, CLIENT)
    return Packet(0, *ends, opcode, qp, 1 if opcode == UD else None, 0, payload)


def msg(body: bytes, proc: str = "RDMA_MSG", **lists: Any) -> bytes:
    xid = struct.unpack_from(">I", body)[0]
    base = {"xid": xid, "version": 1, "credits": 32, "proc": proc}
    return encode({**base, **lists}) + body


def call(xid: int, body: bytes, program: int = 100003, version: int = 4, proc: int = 1) -> bytes:
    return struct.pack(">10I", xid, 0, 2, program, version, proc, 0, 0, 0, 0) + body


def reply(xid: int, body: bytes) -> bytes:
    return struct.pack(">6I", xid, 1, 0, 0, 0, 0) + body


SEQUENCE = word(53) + bytes(16) + word(9) + word(3) + word(63) + word(0)
COMPOUND = opaque(b"") + word(2) + word(3) + SEQUENCE + word(22) + opaque(b"fh") + word(24)


def connect(look: Inside, port: int, private_data: str = "", kind: str = "TCP") -> None:
    req = {
        "attribute": "REQ",
        "local_comm_id": 5,
        "qpn": 0x11,
        "transaction_id": 77,
        "service_id": private.service_id(port, kind),
        "ip_cm": {"src_port": 9, "src": CLIENT, "dst": SERVER},
        "private_data": private_data,
    }
    rep = {"attribute": "REP", "local_comm_id": 6, "remote_comm_id": 5, "qpn": 0x22}
    look.look(packet(cm.encode(req), opcode=UD, qp=1))
    look.look(packet(cm.encode(rep), to_server=False, opcode=UD, qp=1))


def test_call_and_reply_without_cm() -> None:
    look = Inside()
    found: dict[str, Any] = look.look(packet(msg(call(0x1234, COMPOUND))))
    assert found["rpc"]["ops"] == ["SEQUENCE", "PUTFH", "PUTROOTFH"]
    assert brief(found) == "NFS4.2 call SEQUENCE PUTFH PUTROOTFH slot 3 xid 0x1234"
    answer = reply(0x1234, word(0) + opaque(b"") + word(1) + word(24) + word(0))
    found = look.look(packet(msg(answer), to_server=False, qp=99))
    assert brief(found) == "NFS4.2 reply PUTROOTFH xid 0x1234"
    assert found["rpc"]["program_name"] == "NFS" and found["rpc"]["status"] == "NFS4_OK"
    again: dict[str, Any] = look.look(packet(msg(answer), to_server=False, qp=99))
    assert again == found  # A reply that was sent again.
    stranger: dict[str, Any] = Inside().look(packet(msg(answer), to_server=False))
    assert brief(stranger) == "RPC reply xid 0x1234" and "ops" not in stranger["rpc"]


def test_first_packet_of_several() -> None:
    whole = msg(call(1, COMPOUND))
    for cut in range(len(whole) - 1, 28 + 40, -4):
        found: dict[str, Any] = Inside().look(packet(whole[:cut], opcode=FIRST))
        assert found["rpc"]["truncated"] is True and "error" not in found["rpc"]
        ops = found["rpc"].get("ops", [])
        assert ops == ["SEQUENCE", "PUTFH", "PUTROOTFH"][: len(ops)]
        only: dict[str, Any] = Inside().look(packet(whole[:cut]))
        assert only["rpc"]["truncated"] is True and "bytes end" in only["rpc"]["error"]
    assert "truncated" not in Inside().look(packet(whole, opcode=FIRST))["rpc"]  # type: ignore[operator]


def test_reply_in_a_reply_chunk_is_named_by_its_call() -> None:
    look = Inside()
    look.look(packet(msg(call(7, COMPOUND))))
    chunk = [{"handle": 1, "length": 900, "offset": 0}]
    nomsg = {"xid": 7, "version": 1, "credits": 1, "proc": "RDMA_NOMSG", "reply_chunk": chunk}
    found = look.look(packet(encode(nomsg), to_server=False))
    assert brief(found) == "NFS4.2 reply COMPOUND in reply chunk xid 0x7"


def test_same_xid_on_two_connections() -> None:
    look = Inside()
    connect(look, 20049)
    look.look(packet(msg(call(7, b"", version=3, proc=6)), qp=0x22))
    look.look(packet(msg(call(7, b"", version=3, proc=7)), qp=0x99))
    found: dict[str, Any] = look.look(packet(msg(reply(7, word(0))), to_server=False, qp=0x11))
    assert found["rpc"]["procedure_name"] == "READ" and found["rpc"]["status"] == "NFS3_OK"
    found = look.look(packet(msg(reply(7, word(70))), to_server=False, qp=0x98))
    assert found["rpc"]["procedure_name"] == "WRITE"
    assert brief(found) == "NFS3 reply WRITE NFS3ERR_STALE xid 0x7"


CB = opaque(b"") + word(1) + word(0) + word(2) + word(11) + bytes(16) + word(1) * 4 + word(0)
CB += word(10) + word(4)


@pytest.mark.parametrize("program", [0x40000000, 0x40000123])
def test_callbacks_go_the_other_way(program: int) -> None:
    look = Inside()
    look.look(packet(msg(call(5, COMPOUND))))
    found: dict[str, Any] = look.look(
        packet(msg(call(5, CB, program=program, version=1)), to_server=False)
    )
    assert brief(found) == "NFS4.1_CB call CB_SEQUENCE CB_RECALL_SLOT slot 1 xid 0x5"
    assert found["rpc"]["program"] == program
    done = word(0) + opaque(b"") + word(1) + word(10) + word(0)
    found = look.look(packet(msg(reply(5, done))))
    assert found["rpc"]["ops"] == ["CB_RECALL_SLOT"] and found["rpc"]["program"] == program


def test_announced_callback_program_is_believed() -> None:
    look = Inside()
    broken = CB[:-4] + b"\xff"
    found: dict[str, Any] = look.look(packet(msg(call(5, broken, program=777, version=1))))
    assert brief(found) == "RPC 777 call 1 xid 0x5"
    channel = bytes(28)
    create = word(43) + bytes(16) + channel + channel + word(777) + word(0)
    look.look(packet(msg(call(6, opaque(b"") + word(1) + word(1) + create))))
    found = look.look(packet(msg(call(5, broken, program=777, version=1)), to_server=False))
    assert found["rpc"]["program_name"] == "NFS_CB" and "error" in found["rpc"]
    assert brief(found).endswith("malformed")


def test_well_known_programs_are_no_callbacks() -> None:
    look = Inside()
    create = word(43) + bytes(16) + bytes(28) + bytes(28) + word(100003) + word(0)
    look.look(packet(msg(call(6, opaque(b"") + word(1) + word(1) + create))))
    assert brief(look.look(packet(msg(call(7, COMPOUND))))).startswith("NFS4.2 call SEQUENCE")


def test_wrapped_messages_are_not_looked_into() -> None:
    look = Inside()
    cred = struct.pack(">5I", 1, 0, 5, 3, 0)
    wrapped = struct.pack(">8I", 7, 0, 2, 100003, 4, 1, 6, len(cred)) + cred + word(6) + word(0)
    found: dict[str, Any] = look.look(packet(msg(wrapped + opaque(b"x" * 40))))
    assert brief(found) == "NFS4 call COMPOUND xid 0x7" and "ops" not in found["rpc"]
    found = look.look(packet(msg(reply(7, opaque(b"x" * 40))), to_server=False))
    assert brief(found) == "NFS4 reply COMPOUND xid 0x7" and "error" not in found["rpc"]


def test_communication_id_used_again_for_another_port() -> None:
    look = Inside()
    base = {"attribute": "REQ", "local_comm_id": 5, "qpn": 0x11}
    ends = {"ip_cm": {"src_port": 9, "src": CLIENT, "dst": SERVER}}
    for tid, port in ((1, 7471), (2, 20049), (2, 20049)):
        req = {**base, **ends, "transaction_id": tid, "service_id": private.service_id(port)}
        look.look(packet(cm.encode(req), opcode=UD, qp=1))
    rep = {"attribute": "REP", "local_comm_id": 6, "remote_comm_id": 5, "qpn": 0x22}
    found = look.look(packet(cm.encode(rep), to_server=False, opcode=UD, qp=1))
    assert brief(found) == "CM REP port 20049"


def test_only_the_server_can_answer_a_request() -> None:
    look = Inside()
    connect(look, 20049)
    rep = {"attribute": "REP", "local_comm_id": 6, "remote_comm_id": 5, "qpn": 0x33}
    forged = replace(packet(cm.encode(rep), to_server=False, opcode=UD, qp=1), src="10.6.6.6")
    found: dict[str, Any] = look.look(forged)
    assert found["cm"]["connection"]["server_qpn"] == 0x22
    assert look.look(packet(b"\0", qp=0x33)) == {}


def test_known_port_reports_what_heuristics_would_pass_over() -> None:
    rubbish = word(1) + word(7) + word(0) + word(0)
    assert Inside().look(packet(rubbish)) == {}
    look = Inside()
    connect(look, 20049)
    found: dict[str, Any] = look.look(packet(rubbish, qp=0x22))
    assert found["rpcrdma"]["error"] == "RPC-over-RDMA version 7 at byte 4"
    assert look.look(packet(b"", qp=0x22)) == {}
    error = word(1) + word(1) + word(1) + word(4) + word(2)
    assert brief(look.look(packet(error, qp=0x22))) == "RPC/RDMA error ERR_CHUNK"


def test_announcement_in_private_data_is_as_good_as_the_port() -> None:
    look = Inside()
    connect(look, 9999, "f6ab0e180101 0303".replace(" ", ""))
    assert "rpcrdma" in look.look(packet(b"\0", qp=0x22))


def test_end_of_a_connection_is_forgotten_with_its_drep() -> None:
    look = Inside()
    connect(look, 20049)
    drep = {"attribute": "DREP", "local_comm_id": 6, "remote_comm_id": 5}
    found: dict[str, Any] = look.look(packet(cm.encode(drep), to_server=False, opcode=UD, qp=1))
    assert found["cm"]["connection"] == {
        "client": CLIENT,
        "server": SERVER,
        "client_qpn": 0x11,
        "server_qpn": 0x22,
        "port": 20049,
    }
    assert look.look(packet(b"\0", qp=0x22)) == {}


@pytest.mark.parametrize(
    "payload",
    [
        word(1) + word(1) + word(0) + word(0) + word(0) * 3 + word(1) + word(0),  # no credits
        word(1) + word(1) + word(9) + word(0) + word(0) * 3 + word(2) + word(0),  # other xid
        word(1) + word(1) + word(9) + word(0) + word(0) * 3 + word(1) + word(7),  # no RPC type
        word(1) + word(1) + word(9) + word(1) + word(0) * 3,  # no chunk at all
        word(1) + word(1) + word(9) + word(3),  # DONE where no RPC was seen
        word(1) + word(1) + word(9) + word(0) + word(5),  # no list
    ],
)
def test_heuristics_refuse(payload: bytes) -> None:
    assert Inside().look(packet(payload)) == {}


def sqe(opcode: int, cid: int, nsid: int = 1, sgl: bytes = b"", dwords: bytes = b"") -> bytes:
    keyed = (
        struct.pack("<Q", 0x7000) + (4096).to_bytes(3, "little") + struct.pack("<IB", 0xAB, 0x40)
    )
    head = struct.pack("<BBHI", opcode, 0x40, cid, nsid) + bytes(16) + (sgl or keyed)
    return (head + dwords).ljust(64, b"\0")


def test_nvme_read_and_its_response_without_cm() -> None:
    look = Inside()
    read = sqe(2, 5, dwords=struct.pack("<QI", 1 << 33, 7))
    found: dict[str, Any] = look.look(packet(read))
    assert brief(found) == "NVMe Read cid 5 4096 B"
    assert found["nvme"] == {
        "type": "command",
        "opcode": 2,
        "opcode_name": "Read",
        "queue": "io",
        "command_id": 5,
        "nsid": 1,
        "slba": 1 << 33,
        "nlb": 8,
        "sgl": {"type": "keyed data block", "address": 0x7000, "length": 4096, "key": 0xAB},
    }
    cqe = struct.pack("<QHHHH", 0, 3, 1, 5, 0x80 << 1 | 0x8000)
    found = look.look(packet(cqe, to_server=False))
    assert brief(found) == "NVMe Read response cid 5 LBA Out of Range"
    assert found["nvme"]["do_not_retry"] == 1
    assert (found["nvme"]["sqhd"], found["nvme"]["sqid"]) == (3, 1)
    assert look.look(packet(struct.pack("<QHHHH", 0, 3, 1, 6, 0), to_server=False)) == {}
    assert look.look(packet(struct.pack("<QHHHH", 0, 3, 1, 5, 1), to_server=False)) == {}
    assert look.look(packet(cqe)) == {}  # Commands were seen this way, not responses.


def test_connect_tells_the_kind_of_queue() -> None:
    look = Inside()
    fabrics = sqe(0x7F, 0, nsid=1, dwords=struct.pack("<HHH", 0, 0, 31))
    assert brief(look.look(packet(fabrics))) == "NVMe Connect cid 0 qid 0 4096 B"
    log = look.look(packet(sqe(2, 9, dwords=word(0x02000000))))
    assert brief(log) == "NVMe Get Log Page cid 9 4096 B"
    assert log["nvme"]["log"] == 2  # type: ignore[index]
    assert brief(look.look(packet(sqe(2, 9), qp=18))) == "NVMe Read cid 9 4096 B"
    assert nvme.is_io(0x02, 0) is False and nvme.is_io(0x06, 1) is False and nvme.is_io(0, 0)


def test_data_in_the_capsule() -> None:
    sgl = struct.pack("<QI", 0, 512) + b"\0\0\0\x01"
    found: dict[str, Any] = Inside().look(packet(sqe(1, 8, sgl=sgl) + bytes(512)))
    assert found["nvme"]["sgl"] == {"type": "data block", "offset": 0, "length": 512}
    assert found["nvme"]["opcode_name"] == "Write"
    assert Inside().look(packet(sqe(1, 8, sgl=sgl) + bytes(500))) == {}
    assert "nvme" in Inside().look(packet(sqe(1, 8, sgl=sgl) + bytes(100), opcode=FIRST))


def test_text_is_no_command() -> None:
    assert Inside().look(packet(b"\x02@" + b"O" * 62)) == {}
    assert Inside().look(packet(bytes([2]) + b"@" * 63)) == {}


def test_nvme_connection_known_from_cm() -> None:
    look = Inside()
    connect(look, 4420, "00000100 20001f00".replace(" ", ""))
    found: dict[str, Any] = look.look(packet(sqe(9, 3, nsid=0), qp=0x22))
    assert found["nvme"]["opcode_name"] == "Dataset Management"  # qid 1 is an I/O queue
    found = look.look(packet(struct.pack("<QHHHH", 0, 0, 1, 3, 0), to_server=False, qp=0x11))
    assert brief(found) == "NVMe Dataset Management response cid 3 Success"
    found = look.look(packet(b"short", to_server=False, qp=0x11))
    assert found["nvme"]["error"] == "response capsule ends at byte 5"
    assert brief(found) == "NVMe response malformed"
    found = look.look(packet(b"short", qp=0x22))
    assert found["nvme"]["error"] == "command capsule ends at byte 5"


def test_state_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "_OUTSTANDING", 50)
    monkeypatch.setattr(inside, "_CONNECTIONS", 20)
    look = Inside()
    for number in range(300):
        req = {"attribute": "REQ", "local_comm_id": number, "qpn": number, "service_id": 1}
        hosts = {"src": f"10.1.{number // 250}.{number % 250}", "dst": SERVER}
        look.look(replace(packet(cm.encode(req), opcode=UD, qp=1), **hosts))
        look.look(replace(packet(msg(call(number, COMPOUND))), **hosts))
        look.look(replace(packet(sqe(2, number)), **hosts))
    sizes = {key: len(table) for key, table in vars(look).items() if key != "_numbers"}
    assert max(sizes.values()) <= 50
    assert sizes["_by_comm_id"] == sizes["_by_qp"] == 20
    assert sizes["_calls"] == sizes["_commands"] == 50
    last = packet(msg(reply(299, b"")), to_server=False)
    found: dict[str, Any] = look.look(replace(last, dst="10.1.1.49"))
    assert "program" in found["rpc"]
    first: dict[str, Any] = look.look(replace(packet(msg(reply(0, b"")), False), dst="10.1.0.0"))
    assert "program" not in first["rpc"]


def test_any_buffer_will_do() -> None:
    whole = msg(call(1, COMPOUND))
    wanted = Inside().look(packet(whole))
    assert wanted
    for kind in (bytearray, memoryview):
        assert Inside().look(replace(packet(whole), payload=kind(whole))) == wanted  # type: ignore[arg-type]


@functools.cache
def real_payloads() -> list[Packet]:
    names = ("nfs_rdma_v3", "nfs_rdma_v4.2", "nvme_rdma", "rping_v6")
    inside_ = Inside()
    return [p for name in names for p in packets(capture(name)) if inside_.look(p)]


def check(found: dict[str, Any]) -> None:
    assert json.loads(json.dumps(found)) == found
    assert len(json.dumps(found)) < 200_000
    assert found.keys() <= {"cm", "mad", "rpcrdma", "rpc", "nvme"}
    assert isinstance(brief(found), str)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.data())
def test_changed_packets_never_raise(data: st.DataObject) -> None:
    look = Inside()
    connect(look, data.draw(st.sampled_from([20049, 4420, 7174])))
    for _ in range(data.draw(st.integers(1, 8))):
        real = data.draw(st.sampled_from(real_payloads()))
        payload = bytearray(real.payload)
        for _ in range(data.draw(st.integers(0, 6))):
            at = data.draw(st.integers(0, len(payload) - 1))
            value = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0xFF]))
            width = data.draw(st.sampled_from([1, 4]))
            payload[at : at + width] = bytes([value]) * width
        cut = data.draw(st.integers(0, len(payload)))
        qp = data.draw(st.sampled_from([real.dest_qp, 0x11, 0x22]))
        opcode = data.draw(st.sampled_from([real.opcode, FIRST, ONLY, ONLY_INV]))
        ends = {"src": real.src, "dst": data.draw(st.sampled_from([real.dst, SERVER, CLIENT]))}
        sent = data.draw(st.sampled_from([bytes(payload), bytes(payload[:cut])]))
        check(look.look(replace(real, payload=sent, dest_qp=qp, opcode=opcode, **ends)))


@settings(max_examples=300)
@given(st.binary(max_size=4200), st.sampled_from([1, 0x11, 0x22, 5]), st.integers(0, 255))
def test_random_bytes_never_raise(payload: bytes, qp: int, opcode: int) -> None:
    for port in (20049, 4420):
        look = Inside()
        connect(look, port)
        for to_server in (True, False):
            check(look.look(packet(payload, to_server, opcode, qp)))
            start = msg(call(1, opaque(b"") + word(2) + word(99) + payload))
            check(look.look(packet(start, to_server, ONLY, qp)))
            check(look.look(packet(b"\1\7\2\3" + payload, to_server, UD, 1)))
