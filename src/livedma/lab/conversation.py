"""A scripted conversation of two RoCEv2 peers, with a loss and an RNR NAK in it.

It stands in for a device until there is one: every packet is complete and has a good ICRC, but the
script decides what happens, not a protocol engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from livedma.wire import cm, rpcrdma
from livedma.wire.encode import encode

__all__ = ["Step", "conversation"]

MTU = 1024
CLIENT_QP, SERVER_QP = 0x11, 0x2A
CLIENT_PSN, SERVER_PSN = 0x8000, 0x9000
CLIENT_ID, SERVER_ID = 0xC11E47, 0x5E4E4
SPORT = 49152
NFS_RDMA_PORT = 20049
GSI_QKEY = 0x80010000
RKEY, VA = 0x1234, 0x7F0000100000
ACK, RNR_NAK, SEQUENCE_NAK = 0x1F, 0x20 | 1, 0x60
NFS_PROGRAM = 100003


@dataclass(frozen=True)
class Step:
    """One packet, from the IP header on."""

    from_client: bool
    packet: bytes
    is_lost: bool = False  #: it was sent and never arrives


class _Script:
    def __init__(self, client: str, server: str) -> None:
        self.client, self.server = client, server
        self.client_psn = CLIENT_PSN
        self.msn = 0

    def _packet(self, from_client: bool, opcode: str, **fields: Any) -> bytes:
        ends = (self.client, self.server) if from_client else (self.server, self.client)
        fields.setdefault("dest_qp", SERVER_QP if from_client else CLIENT_QP)
        return encode(
            opcode,
            src=ends[0],
            dst=ends[1],
            sport=SPORT,
            migreq=False,
            psn=fields.pop("psn"),
            **fields,
        )

    def mad(self, from_client: bool, message: dict[str, Any]) -> Step:
        mad = cm.encode({"transaction_id": 1, **message})
        deth = {"qkey": GSI_QKEY, "src_qp": 1}
        packet = self._packet(from_client, "UD_SEND_ONLY", dest_qp=1, psn=0, deth=deth, payload=mad)
        return Step(from_client, packet)

    def request(self, opcode: str, psn: int, *, is_lost: bool = False, **fields: Any) -> Step:
        return Step(True, self._packet(True, f"RC_{opcode}", psn=psn & 0xFFFFFF, **fields), is_lost)

    def answer(self, opcode: str, psn: int, syndrome: int = ACK, **fields: Any) -> Step:
        aeth = None if opcode.endswith("MIDDLE") else {"syndrome": syndrome, "msn": self.msn}
        packet = self._packet(False, f"RC_{opcode}", psn=psn & 0xFFFFFF, aeth=aeth, **fields)
        return Step(False, packet)

    def ack(self, psn: int) -> Step:
        self.msn += 1
        return self.answer("ACKNOWLEDGE", psn)

    def send(self, payload: bytes, *, not_ready: bool = False) -> Iterator[Step]:
        psn = self.client_psn
        self.client_psn += 1
        if not_ready:
            yield self.request("SEND_ONLY", psn, ack_req=True, payload=payload)
            yield self.answer("ACKNOWLEDGE", psn, RNR_NAK)
        yield self.request("SEND_ONLY", psn, ack_req=True, payload=payload)
        yield self.ack(psn)

    def write(self, data: bytes, lost: int | None = None) -> Iterator[Step]:
        """One WRITE; packet number `lost` of it does not arrive the first time."""
        first = self.client_psn
        chunks = [data[at : at + MTU] for at in range(0, len(data), MTU)]
        self.client_psn += len(chunks)

        def packets(start: int) -> Iterator[Step]:
            for index in range(start, len(chunks)):
                place = "FIRST" if index == 0 else "LAST" if index == len(chunks) - 1 else "MIDDLE"
                yield self.request(
                    f"RDMA_WRITE_{place}",
                    first + index,
                    is_lost=start == 0 and index == lost,
                    ack_req=place == "LAST",
                    payload=chunks[index],
                    reth={"va": VA, "rkey": RKEY, "length": len(data)} if index == 0 else None,
                )

        yield from packets(0)
        if lost is not None:
            yield self.answer("ACKNOWLEDGE", first + lost, SEQUENCE_NAK)
            yield from packets(lost)
        yield self.ack(first + len(chunks) - 1)

    def read(self, length: int) -> Iterator[Step]:
        first = self.client_psn
        count = -(-length // MTU)
        self.client_psn += count
        reth = {"va": VA, "rkey": RKEY, "length": length}
        yield self.request("RDMA_READ_REQUEST", first, ack_req=True, reth=reth)
        self.msn += 1
        for index in range(count):
            place = "FIRST" if index == 0 else "LAST" if index == count - 1 else "MIDDLE"
            payload = bytes(min(MTU, length - index * MTU))
            yield self.answer(f"RDMA_READ_RESPONSE_{place}", first + index, payload=payload)

    def fetch_add(self) -> Iterator[Step]:
        psn = self.client_psn
        self.client_psn += 1
        atomic = {"va": VA, "rkey": RKEY, "swap_add": 1, "compare": 0}
        yield self.request("FETCH_ADD", psn, ack_req=True, atomic=atomic)
        self.msn += 1
        yield self.answer("ATOMIC_ACKNOWLEDGE", psn, atomic_ack={"original": 41})


def _nfs_null_call(xid: int) -> bytes:
    """A call of NFSv4's NULL procedure, inline in an RPC-over-RDMA message."""
    header = rpcrdma.encode({"xid": xid, "version": 1, "credits": 64, "proc": "RDMA_MSG"})
    words = (xid, 0, 2, NFS_PROGRAM, 4, 0, 0, 0, 0, 0)
    return header + b"".join(word.to_bytes(4, "big") for word in words)


def conversation(client: str, server: str, writes: int = 4) -> Iterator[Step]:
    """A connection from its REQ to its DREP: SENDs, WRITEs, a READ, an atomic."""
    script = _Script(client, server)
    ids = {"local_comm_id": CLIENT_ID, "remote_comm_id": SERVER_ID}
    back = {"local_comm_id": SERVER_ID, "remote_comm_id": CLIENT_ID}
    yield script.mad(
        True,
        {
            "attribute": "REQ",
            "local_comm_id": CLIENT_ID,
            "service_id": 0x1060000 | NFS_RDMA_PORT,
            "qpn": CLIENT_QP,
            "starting_psn": SERVER_PSN,
            "path_mtu": MTU,
            "ip_cm": {"ip_version": 4, "src_port": 900, "src": client, "dst": server},
        },
    )
    reply = {"attribute": "REP", "qpn": SERVER_QP, "starting_psn": CLIENT_PSN}
    yield script.mad(False, reply | back)
    yield script.mad(True, {"attribute": "RTU"} | ids)
    yield from script.send(_nfs_null_call(0x1EDA0001))
    for number in range(writes):
        yield from script.write(bytes([number]) * 4096, lost=1 if number == 1 else None)
    yield from script.read(4096)
    yield from script.send(_nfs_null_call(0x1EDA0002), not_ready=True)
    yield from script.fetch_add()
    yield script.mad(True, {"attribute": "DREQ", "remote_qpn": SERVER_QP} | ids)
    yield script.mad(False, {"attribute": "DREP"} | back)
