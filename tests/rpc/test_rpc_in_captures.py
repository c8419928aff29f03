# SPDX-License-Identifier: BSD-2-Clause
"""Real traffic: this code and `livedma.wire`, which reads captures for people, have to agree."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.rpc.rdma_chunks import Segment, filled_bytes
from tests.rpc.rdma_header import Header, HeaderError, decode_header, encode_header
from tests.rpc.records import encode_record

from captures import capture, names, packets
from livedma.rpc.message import (
    Accepted,
    AcceptStatus,
    AuthSys,
    Call,
    Flavor,
    Reply,
    decode_call,
    decode_reply,
    encode_call,
    encode_reply,
)
from livedma.rpc.rdma_private import PrivateData
from livedma.rpc.record import RecordSplitter
from livedma.rpc.xdr import Decoder
from livedma.wire import rpc
from livedma.wire.inside import Inside

NFS_CAPTURES = [
    "nfs_rdma_v3",
    "nfs_rdma_v4.1",
    "nfs_rdma_v4.2",
    "mtu4096_nfs_v4.2",
    "loss_nfs_v4.2",
]
SENDS = (0x00, 0x04, 0x17)  # RC SEND FIRST, SEND ONLY, and that with invalidate


def shown_segment(segment: Segment) -> dict[str, int]:
    return {"handle": segment.handle, "length": segment.length, "offset": segment.offset}


def shown(header: Header) -> dict[str, Any]:
    """A header as `livedma.wire.rpcrdma` shows it."""
    ret: dict[str, Any] = {
        "xid": header.xid,
        "version": 1,
        "credits": header.credits,
        "proc": header.proc.name,
        "read_list": [
            {"position": chunk.position, **shown_segment(segment)}
            for chunk in header.reads
            for segment in chunk.segments
        ],
        "write_list": [[shown_segment(one) for one in chunk] for chunk in header.writes],
    }
    if header.reply is not None:
        ret["reply_chunk"] = [shown_segment(one) for one in header.reply]
    return ret


def check_call(call: Call, seen: dict[str, Any]) -> None:
    assert (call.xid, call.program, call.version, call.procedure) == (
        seen["xid"],
        seen["program"],
        seen["version"],
        seen["procedure"],
    )
    if isinstance(call.credential, AuthSys):
        assert seen["cred"] == {
            "flavor": "AUTH_SYS",
            "machine": call.credential.machine.decode(),
            "uid": call.credential.uid,
            "gid": call.credential.gid,
        }
    else:
        assert call.credential.flavor != Flavor.AUTH_SYS
        assert rpc.FLAVORS[call.credential.flavor] == seen["cred"]["flavor"]


def check_reply(reply: Reply, seen: dict[str, Any]) -> None:
    assert reply.xid == seen["xid"]
    if isinstance(reply, Accepted):
        assert (seen["reply_stat"], seen["accept_stat"]) == ("accepted", reply.status.name)
        if reply.status == AcceptStatus.PROG_MISMATCH:
            assert reply.versions == (seen["low"], seen["high"])
    else:
        assert (seen["reply_stat"], seen["reject_stat"]) == ("denied", reply.status.name)


@pytest.mark.parametrize("name", NFS_CAPTURES)
def test_every_header_agrees(name: str) -> None:
    look, count = Inside(), Counter[str]()
    stream, messages = bytearray(), []
    for packet in packets(capture(name)):
        found: dict[str, Any] = look.look(packet)
        if packet.opcode not in SENDS:
            continue
        header, end = decode_header(packet.payload)
        assert isinstance(header, Header)
        assert shown(header) == found["rpcrdma"]
        assert encode_header(header) == packet.payload[:end]
        count[header.proc.name] += 1
        if end == len(packet.payload):
            continue
        message = packet.payload[end:]
        messages.append(message)
        stream += encode_record(message, 300)
        decoder, seen = Decoder(message), found["rpc"]
        count[seen["type"]] += 1
        if seen["type"] == "call":
            call = decode_call(decoder)
            check_call(call, seen)
            again = encode_call(call)
        else:
            reply = decode_reply(decoder)
            check_reply(reply, seen)
            again = encode_reply(reply)
        assert again == message[: decoder.pos]
    if not name.startswith("loss"):  # where SENDs come twice
        assert count["call"] == count["reply"] + count["RDMA_NOMSG"] > 0, count
    splitter = RecordSplitter(1 << 20)
    cut = [splitter.feed(stream[at : at + 777]) for at in range(0, len(stream), 777)]
    assert [record for records in cut for record in records] == messages


@pytest.mark.parametrize("name", NFS_CAPTURES)
def test_servers_return_chunks_as_the_client_offered_them(name: str) -> None:
    look, offered, returned = Inside(), {}, 0
    for packet in packets(capture(name)):
        found: dict[str, Any] = look.look(packet)
        if found.get("rpc", {}).get("type") not in ("call", "reply"):
            continue
        header, _ = decode_header(packet.payload)
        assert isinstance(header, Header)
        if found["rpc"]["type"] == "call":
            offered[packet.src, header.xid] = header
            continue
        call = offered.get((packet.dst, header.xid))
        if call is None:
            continue
        for ours, theirs in zip(call.writes, header.writes, strict=True):
            returned += filled_bytes(ours, theirs)
        if header.reply is not None:
            assert call.reply is not None
            returned += filled_bytes(call.reply, header.reply)
    assert returned > 10000


@pytest.mark.parametrize("name", NFS_CAPTURES)
def test_private_data_agrees(name: str) -> None:
    look, count = Inside(), 0
    for packet in packets(capture(name)):
        found: dict[str, Any] = look.look(packet)
        seen = found.get("cm", {}).get("rpcrdma_private")
        if seen is None:
            continue
        at = packet.payload.index(bytes.fromhex("f6ab0e18"))
        private = PrivateData.decode(packet.payload[at:])
        assert seen == {
            "version": 1,
            "remote_invalidation": int(private.remote_invalidation),
            "send_bytes": private.send_bytes,
            "receive_bytes": private.receive_bytes,
        }
        assert private.encode() == packet.payload[at : at + 8]
        count += 1
    assert count >= 2


@pytest.mark.parametrize("name", sorted({*names()} - {*NFS_CAPTURES}))
def test_no_other_traffic_is_taken_for_rpc(name: str) -> None:
    for packet in packets(capture(name)):
        if packet.opcode in SENDS:
            with pytest.raises(HeaderError):
                decode_header(packet.payload)
