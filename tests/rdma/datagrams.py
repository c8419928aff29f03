# SPDX-License-Identifier: BSD-2-Clause
"""Datagrams made by hand, with IDs and ICRCs as a test likes, and their receiver."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from loopback import HERE

import frames
from livedma.rdma import Device

QKEY = 0x11111111
PEER = HERE.rpartition(".")[0] + ".66"
SPORT = 50000


class Receiver:
    """A UD queue pair with Receives for what comes, four letters each."""

    def __init__(self, device: Device) -> None:
        self.device = device
        pd = device.protection_domain()
        self.cq = device.completion_queue()
        self.memory = bytearray(4096)
        self.region = pd.register(self.memory)
        self.qp = pd.queue_pair("UD", self.cq)
        self.qp.modify("INIT", qkey=QKEY)
        self.qp.modify("RTR", mtu=1024)
        for i in range(16):
            self.qp.post_recv(i, [self.region[i * 256 : (i + 1) * 256]])

    def receive(self, count: int) -> list[bytes]:
        """Waits for so many datagrams and returns what they carry."""
        found: list[bytes] = []
        while len(found) < count:
            more = self.cq.wait(60)
            assert more, f"{len(found)} of {count} datagrams came: {self.device.counters}"
            assert {c.status for c in more} == {"SUCCESS"}
            found += [bytes(self.memory[c.wr_id * 256 + 40 :][:4]) for c in more]
        return found

    @property
    def dropped(self) -> int:
        return self.device.counters["dropped_icrc"]


def datagram(
    receiver: Receiver, text: bytes, ident: int = 0, options: bytes = b"", src: str = PEER
) -> bytes:
    """From its IP header on, with the ICRC of the ID."""
    to = (receiver.device.address, receiver.qp.number, QKEY)
    return datagram_to(*to, text, ident, options, src)


def datagram_to(
    dst: str,
    qp: int,
    qkey: int,
    text: bytes,
    ident: int = 0,
    options: bytes = b"",
    src: str = PEER,
) -> bytes:
    transport = struct.pack(">BBHIIII", 0x64, 0, 0xFFFF, qp, 0, qkey, 2) + text
    if ":" in dst:
        return frames.v6(transport, src=src, dst=dst, sport=SPORT)
    return frames.v4(transport, src=src, dst=dst, ident=ident, options=options, sport=SPORT)


def sender(options: bytes = b"", src: str = PEER) -> socket.socket:
    """Its datagrams have the ID 0, as any unconnected socket's that may not be fragmented."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
    if options:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
    sock.bind((src, SPORT))
    return sock


def send_train(packets: Iterable[bytes], interface: str = "lo", macs: bytes = bytes(12)) -> None:
    """One train for segmentation offload, with the headers of the first packet.

    macs: destination and source.
    """
    packets = list(packets)
    is_v4 = packets[0][0] >> 4 == 4
    udp = 20 if is_v4 else 40
    payload = b"".join(packet[udp + 8 :] for packet in packets)
    header = bytearray(packets[0][: udp + 8])
    header[udp + 4 : udp + 6] = struct.pack(">H", 8 + len(payload))
    if is_v4:
        header[2:4] = struct.pack(">H", 28 + len(payload))
        header[10:12] = b"\0\0"
        total = sum(struct.unpack(">10H", header[:20]))
        header[10:12] = struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
    else:
        header[4:6] = struct.pack(">H", 8 + len(payload))
    # virtio_net_hdr: to be segmented as UDP into this size, with a checksum to be computed
    size = len(packets[0]) - udp - 8
    offload = struct.pack("<BBHHHH", 1, 5, 14 + udp + 8, size, 14 + udp, 6)
    ethertype = 0x0800 if is_v4 else 0x86DD
    frame = macs + struct.pack(">H", ethertype) + bytes(header) + payload
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.bind((interface, ethertype))
        sock.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        sock.send(offload + frame)
