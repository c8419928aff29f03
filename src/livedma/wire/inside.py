# SPDX-License-Identifier: BSD-2-Clause
"""Finds what a RoCE packet carries: CM, RPC-over-RDMA with RPC and NFS in it, NVMe over Fabrics.

Everything that a packet alone does not tell is kept here. Since input may be hostile, the tables
are bounded and forget the oldest entry when full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from livedma.wire import cm, nfs, nvme, private, rpc, rpcrdma
from livedma.wire.brief import brief
from livedma.wire.recent import Recent
from livedma.wire.xdr import Malformed, Reader, Short

__all__ = ["Inside", "Packet", "brief"]

_CONNECTIONS = 4096
_OUTSTANDING = 16384
_CREDITS_MOST = 65535  # More than any peer grants. A random word is nearly always above it.

_FIRST, _ONLY, _DATAGRAM = range(3)
# SEND FIRST, and SEND ONLY with and without immediate or invalidate, of RC, UC and XRC; UD.
_STARTS = (
    dict.fromkeys((0x00, 0x20, 0xA0), _FIRST)
    | {base | only: _ONLY for base in (0x00, 0x20, 0xA0) for only in (0x04, 0x05, 0x17)}
    | {0x64: _DATAGRAM, 0x65: _DATAGRAM}
)
_VERSION_1 = b"\0\0\0\1"


class Packet(Protocol):
    """Declares the part of a packet that `Inside.look` reads."""

    @property
    def src(self) -> str: ...
    @property
    def dst(self) -> str: ...
    @property
    def opcode(self) -> int: ...
    @property
    def dest_qp(self) -> int: ...
    @property
    def src_qp(self) -> int | None: ...
    @property
    def psn(self) -> int: ...
    @property
    def payload(self) -> bytes | bytearray | memoryview: ...


@dataclass(slots=True)
class Connection:
    """Holds what the REQ of one connection has told, and its REP (`server_qpn`)."""

    number: int
    client: str
    server: str
    client_qpn: int
    transaction: str
    port: int | None
    kind: str | None
    qid: int | None
    server_qpn: int | None = None

    def shown(self) -> dict[str, object]:
        """Returns the connection as part of a CM result."""
        ret: dict[str, object] = {"client": self.client, "server": self.server}
        ret["client_qpn"] = self.client_qpn
        if self.server_qpn is not None:
            ret["server_qpn"] = self.server_qpn
        if self.port is not None:
            ret["port"] = self.port
        return ret


class Call(NamedTuple):
    """Holds what a reply needs of its call; `program` is NFS_CALLBACK for any callback."""

    program: int
    version: int
    procedure: int
    minor: int | None
    number: int
    is_plain: bool


class Inside:
    """Looks into the packets of one capture, in their order.

    `look` learns connections from CM messages (addresses, both QPNs, the service's port) and
    calls from RPC and NVMe. Without them it judges by what the bytes look like. Use one object
    per capture; it is not thread-safe.
    """

    brief = staticmethod(brief)

    def __init__(self) -> None:
        self._numbers = 0
        self._by_comm_id: Recent[tuple[str, int], Connection] = Recent(_CONNECTIONS)
        self._by_qp: Recent[tuple[str, int], Connection] = Recent(_CONNECTIONS)
        self._calls: Recent[tuple[str, str, int, int], Call] = Recent(_OUTSTANDING)
        self._callback_programs: Recent[int, None] = Recent(_CONNECTIONS)
        self._rpc_pairs: Recent[tuple[str, str], None] = Recent(_CONNECTIONS)
        self._nvme_pairs: Recent[tuple[str, str], None] = Recent(_CONNECTIONS)
        self._queues: Recent[tuple[str, str, int], int] = Recent(_CONNECTIONS)
        self._commands: Recent[tuple[str, str, int, int, int], tuple[int, str, str]] = Recent(
            _OUTSTANDING
        )

    def look(self, packet: Packet) -> dict[str, object]:
        """Returns what `packet` carries, under `cm`, `mad`, `rpcrdma`, `rpc`, `nvme`; {}: unknown.

        Values are plain dicts, lists, strings and integers. A malformed layer has what could be
        read of it and an `error`. Never raises, whatever the bytes are.
        """
        start = _STARTS.get(packet.opcode)
        if start is None:
            return {}
        payload = packet.payload
        data = payload if type(payload) is bytes else bytes(payload)
        if start == _DATAGRAM:
            return self._mad(packet, data) if packet.dest_qp == 1 else {}
        connection = self._by_qp.get((packet.dst, packet.dest_qp))
        is_whole = start == _ONLY
        if connection is not None and connection.kind is not None and data:
            if connection.kind == "rpcrdma":
                return self._rpcrdma(packet, data, is_whole, connection, is_sure=True)
            if packet.dest_qp == connection.client_qpn and packet.dst == connection.client:
                return self._response(packet, data, connection)
            return self._command(packet, data, connection)
        if data[4:8] == _VERSION_1:
            found = self._rpcrdma(packet, data, is_whole, connection, is_sure=False)
            if found:
                return found
        if len(data) >= 64:
            if data[1] & 0xFC == 0x40 and nvme.looks_like_command(data, is_whole):
                return self._command(packet, data, connection)
        elif len(data) == 16 and (packet.dst, packet.src) in self._nvme_pairs:
            return self._guessed_response(packet, data, connection)
        return {}

    # Communication management

    def _mad(self, packet: Packet, data: bytes) -> dict[str, object]:
        # All messages of a connection except REQ begin with both sides' ids.
        local, remote = int.from_bytes(data[24:28], "big"), int.from_bytes(data[28:32], "big")
        known = self._by_comm_id.get((packet.dst, remote))
        if known is None:
            known = self._by_comm_id.get((packet.src, local))
        found: dict[str, Any] = cm.decode(data, known.port if known else None)
        message = found.get("cm")
        if message is None or "error" in message:
            return found
        attribute = message["attribute"]
        if attribute == "REQ":
            self._request(packet, message)
        elif known is not None and not attribute.startswith("SIDR"):
            if attribute == "REP":
                self._reply(packet, message, known)
            elif attribute == "DREP":
                self._forget(known)
            message["connection"] = known.shown()
        return found

    def _request(self, packet: Packet, message: dict[str, Any]) -> None:
        key = (packet.src, message["local_comm_id"])
        qpn, transaction = message["qpn"], message["transaction_id"]
        known = self._by_comm_id.get(key)
        if known and (known.client_qpn, known.transaction) == (qpn, transaction):
            return  # Sent again.
        port = message.get("port")
        kind = None
        if "rpcrdma_private" in message or port == private.NFS_PORT:
            kind = "rpcrdma"
        elif "nvme_private" in message or port in private.NVME_PORTS:
            kind = "nvme"
        qid = message.get("nvme_private", {}).get("qid")
        self._numbers += 1
        connection = Connection(
            self._numbers, packet.src, packet.dst, qpn, transaction, port, kind, qid
        )
        self._by_comm_id[key] = connection
        self._by_qp[packet.src, qpn] = connection

    def _reply(self, packet: Packet, message: dict[str, Any], known: Connection) -> None:
        if packet.src != known.server or packet.dst != known.client:
            return
        known.server_qpn = message["qpn"]
        self._by_comm_id[packet.src, message["local_comm_id"]] = known
        self._by_qp[packet.src, message["qpn"]] = known
        if known.qid is not None:
            self._queues[known.client, known.server, message["qpn"]] = known.qid

    def _forget(self, known: Connection) -> None:
        """Forgets the connection's QPs: another connection may use them from now on."""
        for end in ((known.client, known.client_qpn), (known.server, known.server_qpn or 0)):
            if self._by_qp.get(end) is known:
                self._by_qp.pop(end)

    # RPC

    def _rpcrdma(
        self,
        packet: Packet,
        data: bytes,
        is_whole: bool,
        connection: Connection | None,
        is_sure: bool,
    ) -> dict[str, object]:
        header: dict[str, Any] = {}
        reader = Reader(data)
        try:
            rpcrdma.decode(reader, header)
        except Malformed as wrong:
            _fault(header, wrong, is_whole)
            return {"rpcrdma": header} if is_sure else {}
        if not is_sure and not self._plausible(packet, data, header, reader):
            return {}
        self._rpc_pairs[packet.src, packet.dst] = None
        found: dict[str, object] = {"rpcrdma": header}
        number = connection.number if connection and connection.server_qpn is not None else 0
        if header["proc"] in ("RDMA_MSG", "RDMA_MSGP"):
            found["rpc"] = self._rpc(packet, reader, header, is_whole, number)
        elif header["proc"] == "RDMA_NOMSG" and header.get("reply_chunk"):
            call = self._calls.get((packet.dst, packet.src, number, header["xid"]))
            if call is not None and not header["read_list"]:
                found["rpc"] = answer = {"xid": header["xid"], "type": "reply"}
                _describe(answer, call)
                answer["carried_in"] = "reply_chunk"
        return found

    def _plausible(
        self, packet: Packet, data: bytes, header: dict[str, Any], reader: Reader
    ) -> bool:
        if not 0 < header["credits"] <= _CREDITS_MOST:
            return False
        proc = header["proc"]
        if proc in ("RDMA_MSG", "RDMA_MSGP"):
            rest = data[reader.pos : reader.pos + 8]
            return rest[:4] == data[:4] and rest[4:] in (b"\0\0\0\0", b"\0\0\0\1")
        if proc == "RDMA_NOMSG":
            return reader.left == 0 and bool(header["read_list"] or header.get("reply_chunk"))
        is_pair = (packet.dst, packet.src) in self._rpc_pairs
        return reader.left == 0 and is_pair

    def _rpc(
        self, packet: Packet, reader: Reader, header: dict[str, Any], is_whole: bool, number: int
    ) -> dict[str, Any]:
        ret: dict[str, Any] = {}
        start = reader.pos
        try:
            rpc.decode(reader, ret)
            is_call = ret["type"] == "call"
            chunks = nfs.Chunks(header, start, is_call)
            if is_call:
                self._call(packet, reader, ret, chunks, number)
            else:
                self._answer(packet, reader, ret, chunks, number)
        except Malformed as wrong:
            _fault(ret, wrong, is_whole)
        return ret

    def _call(
        self,
        packet: Packet,
        reader: Reader,
        ret: dict[str, Any],
        chunks: nfs.Chunks,
        number: int,
    ) -> None:
        program, version, procedure = ret["program"], ret["version"], ret["procedure"]
        key = (packet.src, packet.dst, number, ret["xid"])
        known = program
        if program in self._callback_programs or self._like_callback(program, reader, ret):
            known = rpc.NFS_CALLBACK
            rpc.name_call(ret, program, version, procedure, is_callback=True)
        # With integrity or privacy of RPCSEC_GSS both directions are wrapped.
        is_plain = ret["cred"].get("service", "none") == "none"
        try:
            if is_plain:
                nfs.decode(reader, known, version, procedure, ret, chunks)
        finally:  # Half a call is enough to read its reply.
            minor = ret.get("minor")
            self._calls[key] = Call(known, version, procedure, minor, program, is_plain)
            announced = ret.get("callback_program")
            if announced is not None and announced not in rpc.PROGRAMS:
                self._callback_programs[announced] = None

    def _like_callback(self, program: int, reader: Reader, ret: dict[str, Any]) -> bool:
        """Returns whether a call to a transient program can be read to its end as CB_COMPOUND."""
        if program not in rpc.TRANSIENT or ret["procedure"] != 1:
            return False
        trial: dict[str, Any] = {"type": "call"}
        copy = Reader(reader.data, reader.pos)
        try:
            nfs.decode(copy, rpc.NFS_CALLBACK, 1, 1, trial, nfs.Chunks({}, 0, True))
        except Malformed:
            return False
        return copy.left == 0 and bool(trial["ops"])

    def _answer(
        self,
        packet: Packet,
        reader: Reader,
        ret: dict[str, Any],
        chunks: nfs.Chunks,
        number: int,
    ) -> None:
        call = self._calls.get((packet.dst, packet.src, number, ret["xid"]))
        if call is None:
            return
        _describe(ret, call)
        if ret.get("accept_stat") == "SUCCESS" and call.is_plain:
            nfs.decode(reader, call.program, call.version, call.procedure, ret, chunks)

    # NVMe

    def _command(
        self, packet: Packet, data: bytes, connection: Connection | None
    ) -> dict[str, object]:
        found: dict[str, Any] = {}
        flow = (packet.src, packet.dst, packet.dest_qp)
        qid = self._queues.get(flow)
        try:
            nvme.command(data, found, None if qid is None else qid > 0)
        except Short as wrong:
            _fault(found, wrong, is_whole=True)
            return {"nvme": found}
        if "qid" in found:
            qid = found["qid"]
            self._queues[flow] = found["qid"]
        self._nvme_pairs[packet.src, packet.dst] = None
        number = connection.number if connection and connection.server_qpn is not None else 0
        key = (packet.src, packet.dst, number, -1 if qid is None else qid, found["command_id"])
        self._commands[key] = (found["opcode"], found["opcode_name"], found["queue"])
        return {"nvme": found}

    def _response(
        self, packet: Packet, data: bytes, connection: Connection | None
    ) -> dict[str, object]:
        found: dict[str, Any] = {}
        try:
            nvme.response(data, found)
        except Short as wrong:
            _fault(found, wrong, is_whole=True)
            return {"nvme": found}
        number = connection.number if connection and connection.server_qpn is not None else 0
        for qid in (found["sqid"], -1):
            key = (packet.dst, packet.src, number, qid, found["command_id"])
            command = self._commands.get(key)
            if command is not None:
                found["opcode"], found["opcode_name"], found["queue"] = command
                break
        return {"nvme": found}

    def _guessed_response(
        self, packet: Packet, data: bytes, connection: Connection | None
    ) -> dict[str, object]:
        if data[14] & 1:  # The phase tag is not used over fabrics.
            return {}
        found: dict[str, Any] = self._response(packet, data, connection)
        return found if "opcode" in found["nvme"] else {}


def _describe(ret: dict[str, Any], call: Call) -> None:
    rpc.name_call(ret, call.number, call.version, call.procedure, call.program == rpc.NFS_CALLBACK)
    if call.minor is not None:
        ret["minor"] = call.minor


def _fault(layer: dict[str, Any], wrong: Malformed, is_whole: bool) -> None:
    """Notes that `layer` ends early, as an error unless the message goes on in the next packet."""
    if isinstance(wrong, Short):
        layer["truncated"] = True
        if not is_whole:
            return
    layer["error"] = str(wrong)
