# SPDX-License-Identifier: BSD-2-Clause
"""What the connection manager sends is what Linux sends, field by field, in captures of it."""

from __future__ import annotations

from typing import Any

import pytest

from captures import BUNDLED, packets
from livedma.rdma.cm import events
from livedma.rdma.cm.engine import Engine
from livedma.wire import cm

# What one side chooses at random, or the user says: not to be compared.
CHOSEN = {"transaction_id", "local_comm_id", "remote_comm_id", "starting_psn", "primary_flow_label"}
NAMES = sorted(path.stem for path in BUNDLED.glob("r*.pcap"))


def exchange(name: str) -> list[tuple[str, str, bytes]]:
    """Source, destination and MAD of the first connection in a capture."""
    found = []
    for packet in packets(BUNDLED / f"{name}.pcap"):
        if packet.dest_qp == 1 and packet.opcode == 0x64:
            found.append((packet.src, packet.dst, packet.payload))
    return found


def same(ours: bytes, linux: dict[str, Any]) -> None:
    message = cm.decode(ours)["cm"]
    assert {k: v for k, v in message.items() if k not in CHOSEN} == {
        k: v for k, v in linux.items() if k not in CHOSEN
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_client_sends_what_linux_sends(name):
    mads = exchange(name)
    linux = {cm.decode(mad)["cm"]["attribute"]: cm.decode(mad)["cm"] for _, _, mad in mads}
    client, server, _ = mads[0]
    req, rep = linux["REQ"], linux["REP"]
    engine = Engine(client, guid=int(req["ca_guid"], 16))
    mine = engine.connect(
        server,
        req["port"],
        req["qpn"],
        0.0,
        path_mtu=req["path_mtu"],
        responder_resources=req["responder_resources"],
        initiator_depth=req["initiator_depth"],
        retry_count=req["retry_count"],
        rnr_retry_count=req["rnr_retry_count"],
        flow_control=bool(req["flow_control"]),
        source_port=req["ip_cm"]["src_port"],
        private_data=bytes.fromhex(req["private_data"]),
    )
    same(engine.transmits()[0][0], req)
    engine.receive(cm.encode({**rep, "remote_comm_id": mine.local_id}), server, 0.1)
    engine.confirm(mine, 0.2, bytes.fromhex(linux["RTU"]["private_data"]))
    same(engine.transmits()[0][0], linux["RTU"])
    engine.disconnect(mine, 0.3)
    ours = engine.transmits()[0][0]
    assert cm.decode(ours)["cm"]["remote_qpn"] == rep["qpn"]
    if linux["DREQ"]["local_comm_id"] == req["local_comm_id"]:
        same(ours, linux["DREQ"])
    # Every message of a connection has the transaction of its REQ, as Linux's do.
    tids = {linux[a]["transaction_id"] for a in ("REQ", "REP", "RTU", "DREQ")}
    assert len(tids) == 1
    assert int(cm.decode(ours)["cm"]["transaction_id"], 16) == mine.transaction_id


@pytest.mark.parametrize("name", NAMES)
def test_a_server_sends_what_linux_sends(name):
    mads = exchange(name)
    linux = {cm.decode(mad)["cm"]["attribute"]: cm.decode(mad)["cm"] for _, _, mad in mads}
    client, server, req = mads[0]
    rep = linux["REP"]
    engine = Engine(server, guid=int(rep["ca_guid"], 16))
    engine.listen(linux["REQ"]["port"])
    engine.receive(req, client, 0.0)
    request = engine.events()[0]
    assert isinstance(request, events.ConnectRequest)
    engine.accept(
        request.connection,
        rep["qpn"],
        0.1,
        responder_resources=rep["responder_resources"],
        initiator_depth=rep["initiator_depth"],
        rnr_retry_count=rep["rnr_retry_count"],
        flow_control=bool(rep["flow_control"]),
        private_data=bytes.fromhex(rep["private_data"]),
    )
    reply = engine.transmits()[0][0]
    same(reply, rep)
    assert cm.decode(reply)["cm"]["transaction_id"] == rep["transaction_id"]
    ids = {"remote_comm_id": request.connection.local_id}
    engine.receive(cm.encode({**linux["RTU"], **ids}), client, 0.2)
    assert isinstance(engine.events()[0], events.Established)
    if linux["DREQ"]["local_comm_id"] == linux["REQ"]["local_comm_id"]:
        engine.receive(cm.encode({**linux["DREQ"], **ids}), client, 0.3)
        same(engine.transmits()[0][0], linux["DREP"])
        assert isinstance(engine.events()[0], events.Disconnected)


def test_a_closed_port_is_answered_as_linux_does():
    mads = exchange("host_userspace_rc")
    client, server, req = mads[0]
    engine = Engine(server)
    engine.receive(req, client, 0.0)
    assert engine.transmits() == [(mads[1][2], client)]
