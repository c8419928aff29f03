# SPDX-License-Identifier: BSD-2-Clause
"""Real RoCE traffic between hosts: from UDP sockets, without privilege, or as whole frames.

`generator.c` sends and checks it; this module compiles it into a library of its own.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from livedma.lab.hosts import Host
from livedma.wire.encode import vlan_tags

ROCE_PORT = 4791
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_PACKET_QDISC_BYPASS = 20
_SOL_PACKET = 263
_SO_NO_CHECK, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 11, 32, 33
_ETHERTYPES = {4: 0x0800, 6: 0x86DD}
_LINK_MAX = 22
_HERE = Path(__file__).parent
_NATIVE = _HERE.parent / "native"


class _Shape(ctypes.Structure):
    """struct generator_flow of generator.h."""

    _fields_ = (
        ("src", ctypes.c_uint8 * 16),
        ("dst", ctypes.c_uint8 * 16),
        *((name, ctypes.c_uint8) for name in ("version", "ip_version", "opcode")),
        *((name, ctypes.c_uint8) for name in ("by_udp", "repeat", "link_bytes")),
        ("link", ctypes.c_uint8 * _LINK_MAX),
        *((name, ctypes.c_uint16) for name in ("sport", "ip_id")),
        *((name, ctypes.c_uint32) for name in ("dest_qp", "src_qp", "psn")),
        *((name, ctypes.c_uint32) for name in ("segments", "payload_bytes")),
        *((name, ctypes.c_uint64) for name in ("first", "count")),
        ("rate", ctypes.c_double),
    )


class _Result(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("packets", "bytes", "wrong", "out_of_order", "digest")
    )


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/generator.so"
        sources = [_HERE / "generator.c", *sorted((_NATIVE / "wire").glob("*.c"))]
        options = ["-shared", "-fPIC", "-O3", "-D_GNU_SOURCE", f"-I{_NATIVE}", f"-I{_HERE}"]
        subprocess.run(["cc", *options, "-o", path, *sources, "-lisal"], check=True)
        library = ctypes.CDLL(path)
    library.generator_send.restype = ctypes.c_int64
    return library


class Flow:
    """Packets of one shape. Packet i has PSN psn + i and a payload that is computed from i."""

    def __init__(
        self,
        src: str,
        dst: str,
        *,
        opcode: int = 4,
        dest_qp: int = 0x11,
        payload_bytes: int = 64,
        roce1: bool = False,
        link: bytes = b"",
        **numbers: int,
    ) -> None:
        if payload_bytes % 4 or payload_bytes > 9000 or len(link) > _LINK_MAX:
            raise ValueError("a payload is a multiple of 4 bytes, at most 9000; a link at most 22")
        family = socket.AF_INET6 if ":" in dst else socket.AF_INET
        self.dst = dst
        self._shape = shape = _Shape(opcode=opcode, dest_qp=dest_qp, payload_bytes=payload_bytes)
        shape.version, shape.ip_version = 1 if roce1 else 2, 6 if ":" in dst else 4
        shape.sport, shape.link_bytes = numbers.pop("sport", 49152), len(link)
        for name, value in numbers.items():
            setattr(shape, name, value)
        for field, value in (("src", socket.inet_pton(family, src)), ("link", link)):
            ctypes.memmove(getattr(shape, field), value, len(value))
        ctypes.memmove(shape.dst, socket.inet_pton(family, dst), 16 if ":" in dst else 4)

    def _with(self, **fields: float) -> _Shape:
        shape = _Shape.from_buffer_copy(self._shape)
        for name, value in fields.items():
            setattr(shape, name, value)
        return shape

    def send(
        self,
        sock: socket.socket,
        count: int,
        *,
        rate: float = 0,
        segments: int = 1,
        first: int = 0,
        repeat: bool = False,
    ) -> int:
        """Sends `count` packets, from packet `first` on; a UDP socket sends each from its BTH on.

        Returns how many went out. repeat: sends the first few again and again, which is faster than
        building each.
        """
        shape = self._with(count=count, rate=rate, segments=segments, first=first, repeat=repeat)
        shape.by_udp = sock.family != socket.AF_PACKET
        sent = int(_library().generator_send(sock.fileno(), ctypes.byref(shape)))
        if sent < 0:
            raise OSError(-sent, os.strerror(-sent))
        return sent

    def receive(self, sock: socket.socket, count: int, *, idle_ms: int = 1000) -> dict[str, int]:
        """Returns what arrived at a UDP socket: packets, bytes, wrong, out_of_order, digest."""
        shape, result = self._with(count=count), _Result()
        failed = _library().generator_receive(
            sock.fileno(), ctypes.byref(shape), idle_ms, ctypes.byref(result)
        )
        if failed:
            raise OSError(-failed, os.strerror(-failed))
        return {name: getattr(result, name) for name, _ in _Result._fields_}


def udp_socket(
    host: Host, ipv6: bool = False, *, sport: int = 49152, segments: bool = False
) -> socket.socket:
    """Makes an unconnected UDP socket that sends with DF and IPv4 ID 0, so ICRCs can be computed.

    Over IPv4 it sends no UDP checksum, as RoCE senders do, unless it is to send segments (GSO), for
    which the kernel needs one.
    """
    with host.inside():
        sock = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    if ipv6:
        sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_DO)
    else:
        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_DO)
        sock.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, int(not segments))
    sock.bind((host.ipv6 if ipv6 else host.ipv4, sport))
    return sock


def receiver_socket(host: Host, ipv6: bool = False) -> socket.socket:
    """Makes a UDP socket on the RoCE port, with a large buffer."""
    with host.inside():
        sock = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    sock.bind((host.ipv6 if ipv6 else host.ipv4, ROCE_PORT))
    return sock


def packet_socket(host: Host, *, bypass_qdisc: bool = True) -> socket.socket:
    """Makes a packet socket that sends whole frames through the host's interface.

    Bypassing the queueing layer is fast; tc egress is part of that layer and then sees nothing.
    """
    with host.inside():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 16 << 20)
        if bypass_qdisc:
            sock.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        sock.bind((host.iface, 0))
    return sock


def udp_flow(src: Host, dst: Host, *, ipv6: bool = False, **shape: Any) -> Flow:
    """Returns a flow for a UDP socket of src."""
    if ipv6:
        return Flow(src.ipv6, dst.ipv6, **shape)
    return Flow(src.ipv4, dst.ipv4, **shape)


def frame_flow(
    src: Host,
    dst: Host,
    *,
    ipv6: bool = False,
    vlan: tuple[int, ...] = (),
    roce1: bool = False,
    **shape: Any,
) -> Flow:
    """Returns a flow of whole frames for a packet socket; up to two VLAN tags (outer first)."""
    ethertype = 0x8915 if roce1 else _ETHERTYPES[6 if ipv6 else 4]
    link = dst.mac + src.mac + vlan_tags(vlan) + ethertype.to_bytes(2, "big")
    return udp_flow(src, dst, ipv6=ipv6 or roce1, roce1=roce1, link=link, **shape)
