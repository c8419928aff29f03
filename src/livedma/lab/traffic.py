# SPDX-License-Identifier: BSD-2-Clause
"""Real RoCE traffic between lab hosts: from UDP sockets, without privilege, or as whole frames."""

from __future__ import annotations

import socket
from typing import Any

from livedma._native.traffic import Flow
from livedma.lab.hosts import Host
from livedma.wire.encode import vlan_tags

__all__ = ["Flow", "frame_flow", "packet_socket", "receiver_socket", "udp_flow", "udp_socket"]

ROCE_PORT = 4791
_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_DO = 10, 23, 2
_PACKET_QDISC_BYPASS = 20
_SOL_PACKET = 263
_SO_NO_CHECK, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 11, 32, 33
_ETHERTYPES = {4: 0x0800, 6: 0x86DD}


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
