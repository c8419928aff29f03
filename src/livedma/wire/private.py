# SPDX-License-Identifier: BSD-2-Clause
"""Reads private data of CM messages: the IP CM header and what storage protocols put behind it."""

from __future__ import annotations

import ipaddress
import struct
from typing import Any

from livedma.wire.xdr import Malformed

NFS_PORT = 20049
NVME_PORTS = (4420, 8009)
IP_HEADER_BYTES = 36

# Upper 48 bits of a service ID -> port space (IBA annex A11; the last two as Linux uses them).
_PORT_SPACES = {0x0106: "TCP", 0x0111: "UDP", 0x013F: "IB", 0x0002: "IPOIB"}
RPC_MAGIC = 0xF6AB0E18  # RFC 8797 section 4
_NVME_BYTES = 32
NVME_REJECTS = {
    1: "invalid private data length",
    2: "invalid record format",
    3: "invalid queue ID",
    4: "invalid host receive queue size",
    5: "invalid host send queue size",
    6: "no resources",
    7: "invalid IRD",
    8: "invalid ORD",
    9: "invalid controller ID",
}


def service(service_id: int) -> dict[str, Any]:
    """Returns `port_space` and `port` of a service ID that stands for an IP port; else {}."""
    space = _PORT_SPACES.get(service_id >> 16)
    return {"port_space": space, "port": service_id & 0xFFFF} if space else {}


def service_id(port: int, space: str = "TCP") -> int:
    """Returns the service ID of a port; the inverse of `service`."""
    prefix = {name: number for number, name in _PORT_SPACES.items()}[space]
    return prefix << 16 | port


def has_ip_header(service_id: int) -> bool:
    """Returns whether requests to this service start with an IP CM header (IBA annex A11.3)."""
    return service_id >> 24 == 1 and service_id >> 16 != 0x013F


def ip_header(data: bytes, at: int) -> tuple[dict[str, Any], bytes]:
    """Splits `data`, at payload offset `at`, into its IP CM header and what follows it."""
    version, ip, port = struct.unpack_from(">BBH", data)
    if version:
        raise Malformed(f"IP CM version {version >> 4}.{version & 15}", at)
    src, dst = data[4:20], data[20:36]
    header: dict[str, Any] = {"ip_version": ip >> 4, "src_port": port}
    if ip >> 4 == 4:
        header["src"] = str(ipaddress.IPv4Address(src[12:]))
        header["dst"] = str(ipaddress.IPv4Address(dst[12:]))
    elif ip >> 4 == 6:
        header["src"] = str(ipaddress.IPv6Address(src))
        header["dst"] = str(ipaddress.IPv6Address(dst))
    else:
        raise Malformed(f"IP version {ip >> 4} in the IP CM header", at + 1)
    return header, data[IP_HEADER_BYTES:]


def pack_ip_header(header: dict[str, Any]) -> bytes:
    """Returns the 36 bytes of an IP CM header; `ip_version` follows from the addresses."""
    src, dst = (ipaddress.ip_address(header[key]) for key in ("src", "dst"))
    if src.version != dst.version:
        raise ValueError(f"{src} and {dst} are of different IP versions")
    first = struct.pack(">BBH", 0, src.version << 4, header["src_port"])
    return first + src.packed.rjust(16, b"\0") + dst.packed.rjust(16, b"\0")


def consumer(message: str, data: bytes, port: int | None) -> dict[str, Any]:
    """Decodes the consumer's private data: {"rpcrdma_private": ...}, {"nvme_private": ...} or {}.

    RFC 8797 data carries a magic number. NVMe data does not: it is taken for NVMe on an NVMe port,
    or in a REQ whose data looks as NVMe data must.
    """
    if message in ("REQ", "REP") and len(data) >= 8:
        magic, version, flags, send, receive = struct.unpack_from(">IBBBB", data)
        if magic == RPC_MAGIC:
            rpc: dict[str, Any] = {"version": version}
            if version == 1:
                rpc["remote_invalidation"] = flags & 1
                rpc["send_bytes"] = (send + 1) * 1024
                rpc["receive_bytes"] = (receive + 1) * 1024
            return {"rpcrdma_private": rpc}
    if port in NVME_PORTS or (message == "REQ" and _like_nvme(data)):
        nvme = _nvme(message, data)
        return {"nvme_private": nvme} if nvme else {}
    return {}


def _like_nvme(data: bytes) -> bool:
    if _NVME_BYTES > len(data) or any(data[10:]):
        return False
    record, _, receive, send = struct.unpack_from("<HHHH", data)
    return bool(record == 0 and 0 < send <= receive <= send + 1)


def _nvme(message: str, data: bytes) -> dict[str, Any]:
    if message == "REQ" and len(data) >= 10:
        record, qid, receive, send, controller = struct.unpack_from("<HHHHH", data)
        return {
            "record_format": record,
            "qid": qid,
            "receive_queue_size": receive,
            "send_queue_size": send,
            "controller_id": controller,
        }
    if message == "REP" and len(data) >= 4:
        record, receive = struct.unpack_from("<HH", data)
        return {"record_format": record, "receive_queue_size": receive}
    if message == "REJ" and len(data) >= 4:
        record, status = struct.unpack_from("<HH", data)
        name = NVME_REJECTS.get(status, str(status))
        return {"record_format": record, "status": status, "status_name": name}
    return {}
