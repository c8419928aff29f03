# SPDX-License-Identifier: BSD-2-Clause
"""What the decoders say about real kernel traffic, against tshark, packet by packet.

Where tshark is wrong (seen with 4.0):

* It glues the RDMA WRITEs of an NFS READ to the reply and dissects the whole twice: the
  operations and statuses of such a reply appear twice, and 'malformed' is set.
* It shows the RPC message of an RDMA_NOMSG reply from reassembled RDMA WRITEs. Here only SENDs
  are looked at, so there is nothing to compare below RPC-over-RDMA.
* A call whose data is in a read chunk is shown, reassembled, at the last READ response: its own
  packet has an RPC-over-RDMA header only.
* It does not dissect NVMe capsules that come in several packets, nor the responses to them.
* It takes 3 bytes for a REQ's flow label, reserved bits and packet rate but masks them as 4: the
  flow label lacks its last 8 bits and the rate is wrong. (Both ends use the label as an entropy
  source only, so the kernel's header file has to be the judge.)
* It has no fields for MRA, SIDR, LAP, APR.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from captures import Packet, all_captures, capture, own_captures, packets, tshark
from livedma.wire import cm, nfs
from livedma.wire.inside import Inside

NFS_CAPTURES = [
    "nfs_rdma_v3",
    "nfs_rdma_v4.1",
    "nfs_rdma_v4.2",
    "mtu4096_nfs_v4.2",
    "loss_nfs_v4.2",
]
NAMES = {number: name for number, (name, _, _) in nfs.OPERATIONS.items()}
Looked = list[tuple[Packet, dict[str, Any]]]


def looked(name: str) -> Looked:
    inside = Inside()
    return [(packet, inside.look(packet)) for packet in packets(capture(name))]


def numbers(values: list[str]) -> list[int]:
    return [int(value, 0) for value in values]


CM_FIELDS = {
    "REQ": {
        "local_comm_id": "infiniband.cm.req",
        "port": "infiniband.cm.req.serviceid.dport",
        "ca_guid": "infiniband.cm.req.localcaguid",
        "qkey": "infiniband.cm.req.localqkey",
        "qpn": "infiniband.cm.req.localqpn",
        "responder_resources": "infiniband.cm.req.responderres",
        "initiator_depth": "infiniband.cm.req.initdepth",
        "remote_cm_response_timeout": "infiniband.cm.req.remoteresptout",
        "flow_control": "infiniband.cm.req.e2eflowctrl",
        "starting_psn": "infiniband.cm.req.startpsn",
        "local_cm_response_timeout": "infiniband.cm.req.localresptout",
        "retry_count": "infiniband.cm.req.retrcount",
        "pkey": "infiniband.cm.req.pkey",
        "rnr_retry_count": "infiniband.cm.req.rnrretrcount",
        "max_cm_retries": "infiniband.cm.req.maxcmretr",
        "srq": "infiniband.cm.req.srq",
        "primary_local_lid": "infiniband.cm.req.prim_locallid",
        "primary_traffic_class": "infiniband.cm.req.prim_tfcclass",
        "primary_hop_limit": "infiniband.cm.req.prim_hoplim",
        "primary_sl": "infiniband.cm.req.prim_sl",
        "primary_ack_timeout": "infiniband.cm.req.prim_localacktout",
        "private_data": "infiniband.cm.req.ip_cm.private",
    },
    "REP": {
        "local_comm_id": "infiniband.cm.rep",
        "remote_comm_id": "infiniband.cm.rep.remotecommid",
        "qkey": "infiniband.cm.rep.localqkey",
        "qpn": "infiniband.cm.rep.localqpn",
        "starting_psn": "infiniband.cm.rep.startpsn",
        "responder_resources": "infiniband.cm.rep.respres",
        "initiator_depth": "infiniband.cm.rep.initdepth",
        "target_ack_delay": "infiniband.cm.rep.tgtackdelay",
        "failover": "infiniband.cm.rep.failoveracc",
        "rnr_retry_count": "infiniband.cm.rep.rnrretrcount",
        "srq": "infiniband.cm.rep.srq",
        "ca_guid": "infiniband.cm.rep.localcaguid",
        "private_data": "infiniband.cm.rep.private",
    },
    "RTU": {
        "local_comm_id": "infiniband.cm.rtu.localcommid",
        "remote_comm_id": "infiniband.cm.rtu.remotecommid",
        "private_data": "infiniband.cm.rtu.private",
    },
    "REJ": {
        "local_comm_id": "infiniband.cm.rej.localcommid",
        "remote_comm_id": "infiniband.cm.rej.remotecommid",
        "reason": "infiniband.cm.rej.reason",
        "private_data": "infiniband.cm.rej.private",
    },
    "DREQ": {
        "local_comm_id": "infiniband.cm.dreq.localcommid",
        "remote_comm_id": "infiniband.cm.dreq.remotecommid",
        "remote_qpn": "infiniband.cm.req.remoteqpneecn",
        "private_data": "infiniband.cm.dreq.private",
    },
    "DREP": {
        "local_comm_id": "infiniband.cm.drsp.localcommid",
        "remote_comm_id": "infiniband.cm.drsp.remotecommid",
        "private_data": "infiniband.cm.drsp.private",
    },
}


@pytest.mark.slow  # tshark, once for every capture
def test_cm_fields_agree_in_every_capture() -> None:
    wanted = [field for fields in CM_FIELDS.values() for field in fields.values()]
    seen: set[str] = set()
    for path in all_captures():
        inside = Inside()
        rows = tshark(path, "infiniband.mad.attributeid", "infiniband.mad.transactionid", *wanted)
        for packet in packets(path):
            row = rows[packet.frame]
            found: dict[str, Any] = inside.look(packet)
            assert ("cm" in found) == bool(row["infiniband.mad.attributeid"])
            if "cm" not in found:
                continue
            message = found["cm"]
            assert "error" not in message
            name = cm.ATTRIBUTES[int(row["infiniband.mad.attributeid"][0], 0)]
            assert message["attribute"] == name
            tid = int(row["infiniband.mad.transactionid"][0], 0)
            assert int(message["transaction_id"], 0) == tid
            seen.add(name)
            for key, field in CM_FIELDS[name].items():
                where = (path.name, packet.frame, key)
                if key == "private_data":
                    assert [message[key]] == row[field], where
                else:
                    ours = int(str(message[key]), 0)
                    assert [ours] == numbers(row[field]), where
            again = cm.encode(message)
            assert cm.decode(again, message.get("connection", {}).get("port"))["cm"] == {
                key: value for key, value in message.items() if key != "connection"
            }
            assert again == packet.payload
    assert seen >= {"REQ", "REP", "RTU", "DREQ", "DREP"}


@pytest.mark.parametrize("name", ["rping_rc", "rping_v6"])
def test_ip_cm_header_agrees(name: str) -> None:
    fields = [f"infiniband.cm.req.ip_cm.{end}" for end in ("ipv", "sport", "sip4", "sip6", "dip4")]
    fields += ["infiniband.cm.req.ip_cm.dip6", "infiniband.cm.req.pppmtu"]
    row = tshark(capture(name), *fields)[1]
    message: dict[str, Any] = looked(name)[0][1]["cm"]
    header = message["ip_cm"]
    assert header["ip_version"] == int(row[fields[0]][0], 0)
    assert header["src_port"] == int(row[fields[1]][0], 0)
    assert [header["src"]] == row[fields[2]] + row[fields[3]]
    assert [header["dst"]] == row[fields[4]] + row[fields[5]]
    assert [message["primary_local_gid"]] == [header["src"]]
    assert message["path_mtu"] == 128 << int(row[fields[6]][0], 0)


def test_nfs_peers_announce_4096_bytes_inline() -> None:
    first, second, *_ = (found for _, found in looked("nfs_rdma_v4.2"))
    for found in (first, second):
        rpc = found["cm"]["rpcrdma_private"]
        assert (rpc["version"], rpc["send_bytes"], rpc["receive_bytes"]) == (1, 4096, 4096)
    assert first["cm"]["rpcrdma_private"]["remote_invalidation"] == 1
    assert second["cm"]["connection"]["port"] == 20049


RPC_FIELDS = [
    "rpcordma.xid",
    "rpcordma.flow_control",
    "rpcordma.msg_type",
    "rpcordma.reads_count",
    "rpcordma.writes_count",
    "rpcordma.reply_count",
    "rpcordma.position",
    "rpcordma.rdma_handle",
    "rpcordma.rdma_length",
    "rpcordma.rdma_offset",
    "rpc.xid",
    "rpc.msgtyp",
    "rpc.program",
    "rpc.procedure",
    "nfs.opcode",
    "nfs.nfsstat4",
    "nfs.session_id4",
    "nfs.slotid",
    "nfs.seqid",
    "nfs.minorversion",
]


@pytest.mark.parametrize("name", NFS_CAPTURES)
@pytest.mark.parametrize("with_cm", [True, False], ids=["cm", "heuristics"])
def test_rpc_agrees(name: str, with_cm: bool) -> None:
    rows = tshark(capture(name), *RPC_FIELDS)
    inside = Inside()
    compared = 0
    for packet in packets(capture(name)):
        if packet.dest_qp == 1 and not with_cm:
            continue
        found: dict[str, Any] = inside.look(packet)
        row = rows[packet.frame]
        if "rpcrdma" not in found:
            assert not row["rpcordma.xid"] or packet.opcode not in (0x04, 0x17), packet.frame
            continue
        header = found["rpcrdma"]
        assert "error" not in header and "error" not in found.get("rpc", {}), packet.frame
        compared += 1
        _compare_header(header, row)
        if header["read_list"]:
            assert not row["rpc.xid"] and found["rpc"]["type"] == "call"
        elif header["proc"] == "RDMA_MSG":
            _compare_rpc(found["rpc"], row)
    assert compared > 150


def _compare_header(header: dict[str, Any], row: dict[str, list[str]]) -> None:
    assert header["xid"] == int(row["rpcordma.xid"][0], 0)
    assert header["credits"] == int(row["rpcordma.flow_control"][0], 0)
    procs = ["RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE", "RDMA_ERROR"]
    assert procs.index(header["proc"]) == int(row["rpcordma.msg_type"][0], 0)
    assert [len(header["read_list"])] == numbers(row["rpcordma.reads_count"])
    assert [len(header["write_list"])] == numbers(row["rpcordma.writes_count"])
    segments = list(header["read_list"])
    for chunk in [*header["write_list"], header.get("reply_chunk", [])]:
        segments += chunk
    assert [read["position"] for read in header["read_list"]] == numbers(row["rpcordma.position"])
    for key in ("handle", "length", "offset"):
        assert [part[key] for part in segments] == numbers(row[f"rpcordma.rdma_{key}"])


def _compare_rpc(rpc: dict[str, Any], row: dict[str, list[str]]) -> None:
    assert rpc["xid"] == int(row["rpc.xid"][0], 0)
    assert rpc["type"] == ("call", "reply")[int(row["rpc.msgtyp"][0])]
    assert rpc["program"] == int(row["rpc.program"][0])
    assert rpc["procedure"] == int(row["rpc.procedure"][0])
    if "ops" not in rpc:
        assert not row["nfs.opcode"]
        return
    theirs = [NAMES[number] for number in numbers(row["nfs.opcode"])]
    if rpc["ops"] != theirs:
        assert rpc["type"] == "reply" and "READ" in rpc["ops"]  # tshark's double dissection
        assert rpc["ops"] * 2 == theirs
        return
    if rpc["type"] == "call":
        assert [rpc["minor"]] == numbers(row["nfs.minorversion"])
    else:
        assert len(rpc["op_status"]) == len(rpc["ops"])
        assert len(row["nfs.nfsstat4"]) == 1 + len(rpc["ops"])
        is_ok = [status == "NFS4_OK" for status in (rpc["status"], *rpc["op_status"])]
        assert is_ok == [number == 0 for number in numbers(row["nfs.nfsstat4"])]
    if "sequence" in rpc:
        assert rpc["sequence"]["session"] == row["nfs.session_id4"][0]
        assert rpc["sequence"]["slot"] == int(row["nfs.slotid"][0], 0)
        assert rpc["sequence"]["sequence_id"] == int(row["nfs.seqid"][0], 0)


def test_session_is_known_from_its_creation() -> None:
    rpcs = [found["rpc"] for _, found in looked("nfs_rdma_v4.2") if "rpc" in found]
    created = [
        rpc["session"]
        for rpc in rpcs
        if rpc.get("ops") == ["CREATE_SESSION"] and rpc["type"] == "reply"
    ]
    assert len(created) == 1
    assert {rpc["sequence"]["session"] for rpc in rpcs if "sequence" in rpc} == set(created)


def test_replies_elsewhere_still_name_their_procedure() -> None:
    rpcs = [
        found["rpc"] for _, found in looked("nfs_rdma_v4.2") if "carried_in" in found.get("rpc", {})
    ]
    assert len(rpcs) >= 10
    for rpc in rpcs:
        assert (rpc["type"], rpc["procedure_name"], rpc["minor"]) == ("reply", "COMPOUND", 2)
        assert rpc["carried_in"] == "reply_chunk" and "ops" not in rpc


NVME_FIELDS = [
    "nvme.cmd.opc",
    "nvme.cmd.cid",
    "nvme.cmd.nsid",
    "nvme.cmd.slba",
    "nvme.cmd.nlb",
    "nvme.cmd.sgl1.addr",
    "nvme.cmd.sgl1.len",
    "nvme.cmd.sgl1.key",
    "nvme.fabrics.cmd.cid",
    "nvme.fabrics.cmd.fctype",
    "nvme.cqe.cid",
    "nvme.cqe.sqhd",
    "nvme.cqe.sqid",
    "nvme.cqe.status.sc",
    "nvme-rdma.cmd.qid",
]


@pytest.mark.parametrize("with_cm", [True, False], ids=["cm", "heuristics"])
def test_nvme_agrees(with_cm: bool) -> None:
    path = capture("nvme_rdma")
    rows = tshark(path, *NVME_FIELDS)
    inside = Inside()
    unseen = 0
    compared = {"nvme.cmd.cid": 0, "nvme.fabrics.cmd.cid": 0, "nvme.cqe.cid": 0}
    for packet in packets(path):
        if packet.dest_qp == 1 and not with_cm:
            continue
        found: dict[str, Any] = inside.look(packet).get("nvme", {})
        assert "error" not in found
        row = rows[packet.frame]
        kinds = [kind for kind in compared if row[kind]]
        if not kinds:
            unseen += bool(found)
            continue
        compared[kinds[0]] += 1
        assert found, packet.frame
        assert found["command_id"] == int(row[kinds[0]][0], 0)
        if kinds[0] == "nvme.cmd.cid":
            _compare_command(found, row)
        elif kinds[0] == "nvme.fabrics.cmd.cid":
            assert found["type"] == "command" and found["opcode"] == 0x7F
            assert [found["fctype"]] == numbers(row["nvme.fabrics.cmd.fctype"])
        else:
            assert found["type"] == "response"
            assert found["sqhd"] == int(row["nvme.cqe.sqhd"][0], 0)
            assert found["status_code"] == int(row["nvme.cqe.status.sc"][0], 0)
    assert min(compared.values()) > 10, compared
    several = [other for other in packets(path) if other.opcode == 0x00]
    assert unseen == 2 * len(several)


def _compare_command(found: dict[str, Any], row: dict[str, list[str]]) -> None:
    assert found["type"] == "command"
    assert [found["opcode"]] == numbers(row["nvme.cmd.opc"])
    assert [found["nsid"]] == numbers(row["nvme.cmd.nsid"])
    if row["nvme.cmd.slba"]:
        assert found["queue"] == "io"
        assert [found["slba"]] == numbers(row["nvme.cmd.slba"])
        assert [found["nlb"]] == numbers(row["nvme.cmd.nlb"])
    if row["nvme.cmd.sgl1.key"]:
        assert [found["sgl"]["length"]] == numbers(row["nvme.cmd.sgl1.len"])
        assert [found["sgl"]["key"]] == numbers(row["nvme.cmd.sgl1.key"])
        assert [found["sgl"]["address"]] == numbers(row["nvme.cmd.sgl1.addr"])


def test_other_traffic_is_not_mistaken_for_storage() -> None:
    storage = ("nfs", "nvme", "mtu4096_nfs", "loss_nfs")
    sends = 0
    for path in own_captures():
        if path.name.startswith(storage):
            continue
        inside = Inside()
        for packet in packets(path):
            found = inside.look(packet)
            sends += packet.opcode in (0, 4, 5, 0x17, 0x20, 0x24)
            assert not found.keys() - {"cm"}, (path.name, packet.frame)
    assert sends > 500


def test_results_are_plain_json_and_have_a_phrase() -> None:
    phrases = set()
    for name in ("nfs_rdma_v3", "nfs_rdma_v4.2", "nvme_rdma", "host_userspace_rc"):
        for _, found in looked(name):
            assert json.loads(json.dumps(found)) == found
            phrase = Inside.brief(found)
            assert bool(phrase) == bool(found)
            phrases.add(phrase)
    assert "CM REQ port 20049" in phrases
    assert "CM REJ port 7472 (invalid service ID)" in phrases
    assert any(
        phrase.startswith("NFS4.2 call SEQUENCE PUTFH READ slot 0 xid 0x") for phrase in phrases
    )
    assert any(phrase.startswith("NFS3 reply READDIRPLUS ") for phrase in phrases)
    assert any(phrase.startswith("NVMe Read response cid ") for phrase in phrases)
