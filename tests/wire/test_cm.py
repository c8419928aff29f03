# SPDX-License-Identifier: BSD-2-Clause
"""CM messages the captures do not hold, by hand; and every message to bytes and back."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.wire import cm, private

HEADER = bytes.fromhex("0107020300000000 1122334455667788")


def mad(attribute: int, body: bytes) -> bytes:
    return HEADER + struct.pack(">HHI", attribute, 0, 0) + body.ljust(232, b"\0")


def decoded(attribute: int, body: str) -> dict[str, Any]:
    found = cm.decode(mad(attribute, bytes.fromhex(body)))["cm"]
    assert found["transaction_id"] == "0x1122334455667788"
    return found


def test_mra() -> None:
    found = decoded(0x11, "00000001 00000002 40 a8 6869")
    assert found["attribute"] == "MRA"
    assert (found["local_comm_id"], found["remote_comm_id"]) == (1, 2)
    assert (found["message"], found["service_timeout"]) == ("REP", 21)
    assert found["private_data"] == "6869".ljust(444, "0")


def test_rej_names_its_reason() -> None:
    found = decoded(0x12, "00000001 00000002 40 08 001c" + "aabbccdd" + "00" * 68 + "ff")
    assert (found["reason"], found["reason_name"]) == (28, "consumer reject")
    assert (found["message"], found["reject_info_length"]) == ("REP", 4)
    assert found["additional_info"].startswith("aabbccdd00")
    assert found["private_data"].startswith("ff00")
    assert decoded(0x12, "00000001 00000002 00 00 0063")["reason_name"] == "99"
    assert decoded(0x12, "00000001 00000002 00 00 0021")["reason_name"] == (
        "invalid alternate flow label"
    )


def test_lap_and_apr() -> None:
    lap = "00000001 00000002 00000000 123456a0 00000000 0007 0008"
    lap += "00000000000000000000ffff0a000001 00000000000000000000ffff0a000002"
    lap += "abcde0 11 40 05 38 88 99"
    found = decoded(0x19, lap)
    assert found["remote_qpn"] == 0x123456
    assert found["remote_cm_response_timeout"] == 20
    assert (found["alternate_local_lid"], found["alternate_remote_lid"]) == (7, 8)
    assert found["alternate_local_gid"] == "10.0.0.1"
    assert found["alternate_remote_gid"] == "10.0.0.2"
    assert (found["alternate_flow_label"], found["alternate_traffic_class"]) == (0xABCDE, 0x11)
    assert (found["alternate_hop_limit"], found["alternate_packet_rate"]) == (0x40, 5)
    assert (found["alternate_sl"], found["alternate_subnet_local"]) == (3, 1)
    assert found["alternate_ack_timeout"] == 17
    assert found["private_data"].startswith("99")
    found = decoded(0x1A, "00000001 00000002 00 03 0000")
    assert (found["attribute"], found["status"]) == ("APR", "rejected")


def test_sidr() -> None:
    header = "00 40 1234" + "00" * 12 + "0a000001" + "00" * 12 + "0a000002"
    found = decoded(0x17, "00000009 ffff 0000 0000000001111234" + header + "cafe")
    assert (found["request_id"], found["pkey"]) == (9, 0xFFFF)
    assert (found["port_space"], found["port"]) == ("UDP", 0x1234)
    assert found["ip_cm"] == {
        "ip_version": 4,
        "src_port": 0x1234,
        "src": "10.0.0.1",
        "dst": "10.0.0.2",
    }
    assert found["private_data"].startswith("cafe00")
    assert len(found["private_data"]) == 2 * (216 - 36)
    found = decoded(
        0x18, "00000009 01 00 0000 abcdef00 0000000001111234 01234567" + "00" * 72 + "77"
    )
    assert (found["status"], found["qpn"]) == ("unsupported service ID", 0xABCDEF)
    assert (found["qkey"], found["port"]) == (0x01234567, 0x1234)
    assert found["private_data"].startswith("7700") and len(found["private_data"]) == 272


def test_alternate_path_of_a_req_shows_when_there_is_one() -> None:
    message = {
        "attribute": "REQ",
        "service_id": private.service_id(4791),
        "ip_cm": {"src_port": 7, "src": "fe80::1", "dst": "fe80::2"},
        "alternate_local_gid": "fe80::9",
        "path_mtu": 4096,
        "transport": "UC",
    }
    found = cm.decode(cm.encode(message))["cm"]
    assert found["alternate_local_gid"] == "fe80::9"
    assert (found["path_mtu"], found["transport"]) == (4096, "UC")
    assert found["ip_cm"]["ip_version"] == 6 and found["ip_cm"]["src"] == "fe80::1"
    del message["alternate_local_gid"]
    assert not [key for key in cm.decode(cm.encode(message))["cm"] if "alternate" in key]


def test_fields_of_req_and_rep_by_hand() -> None:
    """Those that are 0 in the captures, or that tshark cannot judge."""
    body = bytearray(232)
    body[36:44] = bytes.fromhex("aaaaaa05 bbbbbba5")
    body[50:52] = bytes.fromhex("3f 8d")
    body[88:96] = bytes.fromhex("abcde016 22 40 58 88")
    found = cm.decode(mad(0x10, bytes(body)))["cm"]
    assert (found["eecn"], found["initiator_depth"]) == (0xAAAAAA, 5)
    assert (found["remote_eecn"], found["remote_cm_response_timeout"]) == (0xBBBBBB, 20)
    assert (found["transport"], found["flow_control"]) == ("RD", 1)
    assert (found["path_mtu"], found["rdc_exists"], found["rnr_retry_count"]) == (1024, 1, 7)
    assert (found["max_cm_retries"], found["srq"], found["extended_transport"]) == (8, 1, 5)
    assert (found["primary_flow_label"], found["primary_packet_rate"]) == (0xABCDE, 0x16)
    assert (found["primary_traffic_class"], found["primary_hop_limit"]) == (0x22, 0x40)
    assert (found["primary_sl"], found["primary_subnet_local"]) == (5, 1)
    assert found["primary_ack_timeout"] == 17
    found = decoded(0x13, "00000001 00000002 00000003 00000400 00000500 00000600 07 08 7d f0")
    assert (found["qkey"], found["qpn"], found["eecn"], found["starting_psn"]) == (3, 4, 5, 6)
    assert (found["responder_resources"], found["initiator_depth"]) == (7, 8)
    assert (found["target_ack_delay"], found["failover"], found["flow_control"]) == (15, 2, 1)
    assert (found["rnr_retry_count"], found["srq"]) == (7, 1)


def test_services_that_are_no_ip_port_have_no_ip_header() -> None:
    found = cm.decode(cm.encode({"attribute": "REQ", "service_id": 0x1000CAFE00000001}))["cm"]
    assert not {"port", "port_space", "ip_cm", "error"} & found.keys()
    assert len(found["private_data"]) == 2 * 92


def test_wrong_ip_headers_are_reported() -> None:
    message = {"attribute": "REQ", "service_id": private.service_id(20049)}
    assert cm.decode(cm.encode(message))["cm"]["error"] == (
        "IP version 0 in the IP CM header at byte 165"
    )
    message["private_data"] = "10"
    found = cm.decode(cm.encode(message))["cm"]
    assert found["error"] == "IP CM version 1.0 at byte 164"
    assert found["private_data"].startswith("10")


def test_rpcrdma_private_data() -> None:
    found = cm.decode(cm.encode({"attribute": "REP", "private_data": "f6ab0e18 01 01 00 3f"}))
    assert found["cm"]["rpcrdma_private"] == {
        "version": 1,
        "remote_invalidation": 1,
        "send_bytes": 1024,
        "receive_bytes": 65536,
    }
    found = cm.decode(cm.encode({"attribute": "REP", "private_data": "f6ab0e18 02 01 00 3f"}))
    assert found["cm"]["rpcrdma_private"] == {"version": 2}


def test_nvme_private_data() -> None:
    req: dict[str, Any] = {
        "attribute": "REQ",
        "service_id": private.service_id(4444),
        "ip_cm": {"src_port": 7, "src": "10.0.0.1", "dst": "10.0.0.2"},
        "private_data": "0000 0300 8000 7f00 0100",
    }
    nvme = cm.decode(cm.encode(req))["cm"]["nvme_private"]
    assert (nvme["qid"], nvme["receive_queue_size"], nvme["send_queue_size"]) == (3, 128, 127)
    assert nvme["controller_id"] == 1
    req["private_data"] = "0000 0300 8000 1000"
    assert "nvme_private" not in cm.decode(cm.encode(req))["cm"]
    req["service_id"] = private.service_id(8009)
    assert cm.decode(cm.encode(req))["cm"]["nvme_private"]["send_queue_size"] == 16
    rej = cm.encode({"attribute": "REJ", "reason": 28, "private_data": "00000300"})
    assert cm.decode(rej, 4420)["cm"]["nvme_private"]["status_name"] == "invalid queue ID"
    assert "nvme_private" not in cm.decode(rej)["cm"]


def test_other_mads_are_named_only() -> None:
    other = bytes([1, 3, 2, 0x81]) + bytes(12) + b"\0\x35" + bytes(238)
    assert cm.decode(other) == {"mad": {"class": 3, "method": 0x81, "attribute": 0x35}}
    assert cm.decode(mad(0x01, b"")) == {"mad": {"class": 7, "method": 3, "attribute": 1}}


def test_short_mads_are_reported() -> None:
    assert cm.decode(b"\1\7")["mad"]["error"] == "MAD header ends at byte 2 of 24"
    found = cm.decode(mad(0x10, b"")[:255])["cm"]
    assert found == {
        "attribute": "REQ",
        "attribute_id": 0x10,
        "transaction_id": "0x1122334455667788",
        "error": "CM message ends at byte 255",
    }


@pytest.mark.parametrize(
    "message",
    [
        {"attribute": "HELLO"},
        {"attribute": "REQ", "qpn": 1 << 24},
        {"attribute": "REQ", "qpn": -1},
        {"attribute": "REQ", "path_mtu": 1500},
        {"attribute": "RTU", "private_data": "00" * 225},
        {"attribute": "REQ", "ip_cm": {"src_port": 1, "src": "10.0.0.1", "dst": "::1"}},
    ],
)
def test_what_does_not_fit_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        cm.encode(message)


def test_private_data_sizes_are_those_of_the_specification() -> None:
    assert cm.PRIVATE_BYTES == {
        "REQ": 92,
        "MRA": 222,
        "REJ": 148,
        "REP": 196,
        "RTU": 224,
        "DREQ": 220,
        "DREP": 224,
        "SIDR_REQ": 216,
        "SIDR_REP": 136,
        "LAP": 168,
        "APR": 148,
    }


@given(st.sampled_from(sorted(cm.ATTRIBUTES)), st.binary(min_size=232, max_size=232))
def test_decoded_messages_survive_encoding(attribute: int, body: bytes) -> None:
    found = cm.decode(mad(attribute, body))["cm"]
    again = cm.decode(cm.encode(found))["cm"]
    assert again == found
