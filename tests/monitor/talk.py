# SPDX-License-Identifier: BSD-2-Clause
"""A connection made of frames by hand: CM, calls and replies, shown to a monitor one by one."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from livedma.monitor import Monitor
from livedma.wire import cm
from livedma.wire.encode import encode, ethernet

SERVER, CLIENT = "10.1.0.1", "10.1.0.2"
SERVER6, CLIENT6 = "fd01::1", "fd01::2"
SESSION = bytes(range(16))
PUTFH, READ, WRITE, GETATTR, SEQUENCE = 22, 25, 38, 9, 53
BAD_SESSION, DELAY = 10052, 10008


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def opaque(data: bytes) -> bytes:
    return words(len(data)) + data.ljust((len(data) + 3) // 4 * 4, b"\0")


def segments(*lengths: int) -> bytes:
    return words(len(lengths)) + b"".join(
        words(0x1000 + i, length) + bytes(8) for i, length in enumerate(lengths)
    )


def header(
    xid: int,
    *,
    granted: int = 32,
    proc: int = 0,
    version: int = 1,
    reads: tuple[tuple[int, int], ...] = (),
    writes: tuple[int, ...] = (),
    reply: tuple[int, ...] = (),
) -> bytes:
    """RPC-over-RDMA; granted: credits. reads: position and length of segments; others: lengths."""
    read_list = b"".join(words(1, at, 0x2000, length) + bytes(8) for at, length in reads)
    write_list = words(1) + segments(*writes) if writes else b""
    reply_chunk = words(1) + segments(*reply) if reply else words(0)
    lists = read_list + words(0) + write_list + words(0) + reply_chunk
    return words(xid, version, granted, proc) + lists


def call(
    xid: int,
    *operations: bytes,
    session: bytes | None = SESSION,
    tag: bytes = b"",
    program: int = 100003,
    version: int = 4,
    procedure: int = 1,
    machine: bytes = b"client",
) -> bytes:
    """An RPC call of a COMPOUND."""
    credential = words(0) + opaque(machine) + words(0, 0, 0)
    ops = list(operations)
    if session is not None:
        ops.insert(0, words(SEQUENCE) + session + words(1, 0, 0, 0))
    head = words(xid, 0, 2, program, version, procedure, 1) + opaque(credential) + words(0, 0)
    return head + opaque(tag) + words(1, len(ops)) + b"".join(ops)


def read(count: int = 4096, handle: bytes = b"handle-1") -> bytes:
    return words(PUTFH) + opaque(handle) + words(READ) + bytes(16 + 8) + words(count)


def write(count: int, data: bytes = b"", handle: bytes = b"handle-1") -> bytes:
    head = words(PUTFH) + opaque(handle) + words(WRITE) + bytes(16 + 8) + words(0, count)
    return head + data + words(GETATTR, 1, 0)


def reply(
    xid: int,
    *results: bytes,
    session: bytes | None = SESSION,
    status: int = 0,
    sequence_status: int = 0,
    tag: bytes = b"",
    accept: int = 0,
) -> bytes:
    head = words(xid, 1, 0, 0, 0, accept)
    if accept:
        return head
    ops = list(results)
    if session is not None:
        done = session + words(1, 0, 0, 0, 0) if not sequence_status else b""
        ops.insert(0, words(SEQUENCE, sequence_status) + done)
    return head + words(status or sequence_status) + opaque(tag) + words(len(ops)) + b"".join(ops)


def did_read(count: int, data: bytes = b"") -> bytes:
    return words(PUTFH, 0, READ, 0, 1, count) + data


def did_write(count: int) -> bytes:
    return words(PUTFH, 0, WRITE, 0, count, 0) + bytes(8) + words(GETATTR, 0, 0, 0)


@dataclass
class Talk:
    """What passes between a client and a server. PSNs go up by themselves."""

    monitor: Monitor
    server: str = SERVER
    client: str = CLIENT
    server_qpn: int = 0x11
    client_qpn: int = 0x22
    comm_ids: tuple[int, int] = (0xA1, 0xB2)  #: the client's, the server's
    vlan: tuple[int, ...] = ()
    psn: dict[bool, int] = field(default_factory=lambda: {True: 100, False: 900})

    def show(self, packet: bytes) -> None:
        self.monitor.feed(ethernet(packet, vlan=self.vlan))

    def cm(self, by_client: bool, attribute: str, **fields: Any) -> None:
        src, dst = (self.client, self.server) if by_client else (self.server, self.client)
        mad = cm.encode({"attribute": attribute, **fields})
        self.show(encode("UD_SEND_ONLY", src=src, dst=dst, dest_qp=1, psn=0, payload=mad))

    def ask(self, port: int = 20049, **fields: Any) -> None:
        self.cm(
            True,
            "REQ",
            **{
                "local_comm_id": self.comm_ids[0],
                "service_id": 0x1060000 | port,
                "qpn": self.client_qpn,
                "path_mtu": 1024,
                **fields,
            },
        )

    def accept(self) -> None:
        client, server = self.comm_ids
        ids = {"local_comm_id": server, "remote_comm_id": client}
        self.cm(False, "REP", **ids, qpn=self.server_qpn)

    def connect(self, port: int = 20049) -> Talk:
        self.ask(port)
        self.accept()
        return self

    def disconnect(self, by_client: bool = True, attribute: str = "DREQ", **fields: Any) -> None:
        mine, theirs = self.comm_ids if by_client else self.comm_ids[::-1]
        ids = {"local_comm_id": mine, "remote_comm_id": theirs, **fields}
        self.cm(by_client, attribute, **ids)

    def packet(
        self,
        to_server: bool,
        opcode: str = "RC_SEND_ONLY",
        payload: bytes = b"",
        psn: int | None = None,
        **fields: Any,
    ) -> bytes:
        """psn: None for the next one."""
        if psn is None:
            psn = self.psn[to_server] = (self.psn[to_server] + 1) & 0xFFFFFF
        src, dst = (self.client, self.server) if to_server else (self.server, self.client)
        qpn = self.server_qpn if to_server else self.client_qpn
        return encode(opcode, src=src, dst=dst, dest_qp=qpn, psn=psn, payload=payload, **fields)

    def send(self, to_server: bool, payload: bytes, **fields: Any) -> None:
        self.show(self.packet(to_server, payload=payload, **fields))

    def call(self, payload: bytes, **fields: Any) -> None:
        self.send(True, payload, **fields)

    def reply(self, payload: bytes, **fields: Any) -> None:
        self.send(False, payload, **fields)

    def read(self, xid: int, count: int = 4096, session: bytes = SESSION) -> None:
        """Asks for so much, by a chunk, and gets it."""
        self.call(header(xid, writes=(count,)) + call(xid, read(count), session=session))
        done = reply(xid, did_read(count), session=session)
        self.reply(header(xid, granted=64, writes=(count,)) + done)
