# SPDX-License-Identifier: BSD-2-Clause
"""RoCE traffic for the lab, sent and checked in C."""
import socket

from libc.string cimport memcpy, memset

from livedma._native.packet cimport *


cdef extern from "sys/socket.h" nogil:
    ctypedef uint32_t socklen_t
    struct sockaddr:
        pass

cdef extern from "netinet/in.h" nogil:
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        in6_addr sin6_addr
    uint16_t htons(uint16_t)

cdef extern from "generator.h" nogil:
    int GENERATOR_LINK_MAX

    struct generator_flow:
        ldma_packet packet
        uint8_t *link
        uint32_t link_bytes
        bint by_udp
        uint32_t segments
        uint32_t payload_bytes
        uint64_t first
        uint64_t count
        double rate
        bint repeat

    struct generator_result:
        uint64_t packets
        uint64_t bytes
        uint64_t wrong
        uint64_t out_of_order
        uint64_t digest

    int64_t generator_send(int fd, const generator_flow *flow, const sockaddr *to,
                           socklen_t to_bytes)
    int generator_receive(int fd, const generator_flow *flow, int idle_ms, generator_result *ret)


cdef class Flow:
    """Packets of one shape. Packet i has PSN psn + i and a payload that is computed from i."""

    cdef generator_flow c
    cdef readonly str dst

    def __cinit__(self, str src, str dst, *, uint8_t opcode=4, uint32_t dest_qp=0x11,
                  uint32_t src_qp=0, uint32_t psn=0, uint32_t payload_bytes=64,
                  uint16_t sport=49152, uint16_t ip_id=0, bint roce1=False, bytes link=b""):
        memset(&self.c, 0, sizeof(self.c))
        cdef ldma_packet *packet = &self.c.packet
        family = socket.AF_INET6 if ":" in dst else socket.AF_INET
        cdef bytes src_bytes = socket.inet_pton(family, src)
        cdef bytes dst_bytes = socket.inet_pton(family, dst)
        if payload_bytes % 4 or payload_bytes > 9000:
            raise ValueError("a payload takes a multiple of 4 bytes, at most 9000")
        if len(link) > GENERATOR_LINK_MAX:
            raise ValueError(f"a link header takes at most {GENERATOR_LINK_MAX} bytes")
        memcpy(packet.src, <const char *>src_bytes, len(src_bytes))
        memcpy(packet.dst, <const char *>dst_bytes, len(dst_bytes))
        packet.ip_version = 6 if family == socket.AF_INET6 else 4
        packet.version = 1 if roce1 else 2
        packet.ttl = 64
        packet.ip_id = ip_id
        packet.sport = sport
        packet.dport = 4791
        packet.opcode = opcode
        packet.pkey = 0xffff
        packet.dest_qp = dest_qp
        packet.src_qp = src_qp
        packet.psn = psn
        packet.dma_length = payload_bytes
        memcpy(self.c.link, <const char *>link, len(link))
        self.c.link_bytes = len(link)
        self.c.payload_bytes = payload_bytes
        self.dst = dst

    def send(self, sock, uint64_t count, *, double rate=0, uint32_t segments=1, uint64_t first=0,
             bint repeat=False):
        """Sends `count` packets, from packet `first` on; a UDP socket sends each from its BTH on. Returns how many
        went out.

        repeat: sends the first few again and again, which is faster than building each.
        """
        cdef sockaddr_in6 to6
        cdef sockaddr_in to4
        cdef const sockaddr *to = NULL
        cdef socklen_t to_bytes = 0
        cdef int fd = sock.fileno()
        cdef generator_flow flow = self.c
        cdef int64_t sent
        flow.count, flow.first, flow.rate, flow.segments = count, first, rate, segments
        flow.repeat = repeat
        flow.by_udp = sock.family != socket.AF_PACKET
        if flow.by_udp:
            flow.link_bytes = 0
            memset(&to4, 0, sizeof(to4))
            memset(&to6, 0, sizeof(to6))
            to4.sin_family = socket.AF_INET
            to6.sin6_family = socket.AF_INET6
            to4.sin_port = to6.sin6_port = htons(4791)
            memcpy(&to4.sin_addr, flow.packet.dst, 4)
            memcpy(&to6.sin6_addr, flow.packet.dst, 16)
            if flow.packet.ip_version == 4:
                to, to_bytes = <const sockaddr *>&to4, sizeof(to4)
            else:
                to, to_bytes = <const sockaddr *>&to6, sizeof(to6)
        with nogil:
            sent = generator_send(fd, &flow, to, to_bytes)
        if sent < 0:
            raise OSError(-sent, "traffic cannot be sent")
        return sent

    def receive(self, sock, uint64_t count, *, int idle_ms=1000):
        """Returns what arrived at a UDP socket: packets, bytes, wrong, out_of_order, digest."""
        cdef int fd = sock.fileno()
        cdef generator_flow flow = self.c
        cdef generator_result result
        cdef int err
        flow.count = count
        with nogil:
            err = generator_receive(fd, &flow, idle_ms, &result)
        if err:
            raise OSError(-err, "traffic cannot be received")
        return result
