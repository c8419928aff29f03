# SPDX-License-Identifier: BSD-2-Clause
"""Connections in a stream of packets: what was sent, lost, sent again and refused (capture/flow.h)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from livedma._native.packet cimport (ldma_batch, ldma_operation_names, ldma_packet, LDMA_OP_COUNT)
from livedma._native.wire cimport Batch

cdef extern from "wire/packet.h" nogil:
    const char *ldma_nak_reason(uint8_t syndrome)

cdef extern from "capture/flow.h" nogil:
    struct ldma_flow_table
    struct ldma_flow_key:
        uint8_t src[16]
        uint8_t dst[16]
        uint32_t dest_qp
        uint8_t transport
        uint8_t ip_version
    struct ldma_flow:
        ldma_flow_key key
        int32_t peer
        bint joined_by_cm
        bint starts_inside, is_closed
        uint32_t mtu
        uint64_t first_ns, last_ns
        uint64_t packets, bytes, copies, icrc_errors, undecoded, cnps, ecn_marked
        uint64_t requests, responses
        uint64_t *messages
        uint64_t *payload_bytes
        uint64_t *naks
        uint64_t rnr_naks
        uint64_t retransmitted, duplicates
        uint64_t *lost
        uint64_t missing, not_captured, lost_unclear, crossed
        uint64_t recovered_by_nak, timeouts, restarts, timeout_ns
        uint32_t attempts
        uint8_t fatal_nak
        bint is_unanswered, is_rnr_pending, is_lost_at_end
        uint8_t open_operation
        uint64_t rtt_count
    struct ldma_flow_totals:
        uint64_t packets, bytes, errors, icrc_errors, not_tracked
        uint64_t first_ns, last_ns

    ldma_flow_table *ldma_flow_table_create()
    void ldma_flow_table_destroy(ldma_flow_table *table)
    void ldma_flow_table_packet(ldma_flow_table *table, const ldma_packet *packet)
    const ldma_flow *ldma_flow_table_get(ldma_flow_table *table, uint32_t index)
    ldma_flow_totals ldma_flow_table_totals(const ldma_flow_table *table)
    int64_t ldma_flow_rtt_ns(const ldma_flow *a, const ldma_flow *b, uint32_t per_mille)

TRANSPORTS = ("RC", "UC", "RD", "UD", "CNP", "XRC")


cdef dict by_operation(const uint64_t *counts):
    return {ldma_operation_names[i].decode(): counts[i]
            for i in range(LDMA_OP_COUNT) if counts[i]}


cdef bytes address(const uint8_t *raw, int version):
    return (<const char *>raw)[:4 if version == 4 else 16]


cdef dict as_dict(uint32_t index, const ldma_flow *f):
    cdef dict naks = {}
    for i in range(32):
        if f.naks[i]:
            reason = ldma_nak_reason(<uint8_t>(0x60 | i)).decode()
            naks[reason] = naks.get(reason, 0) + f.naks[i]
    return {
        "index": index, "peer": f.peer if f.peer >= 0 else None,
        "joined_by_cm": bool(f.joined_by_cm),
        "starts_inside": bool(f.starts_inside), "is_closed": bool(f.is_closed),
        "src": address(f.key.src, f.key.ip_version), "dst": address(f.key.dst, f.key.ip_version),
        "dest_qp": f.key.dest_qp, "transport": TRANSPORTS[f.key.transport], "mtu": f.mtu,
        "first_ns": f.first_ns, "last_ns": f.last_ns,
        "packets": f.packets, "bytes": f.bytes, "copies": f.copies,
        "icrc_errors": f.icrc_errors, "undecoded": f.undecoded,
        "cnps": f.cnps, "ecn_marked": f.ecn_marked,
        "requests": f.requests, "responses": f.responses,
        "messages": by_operation(f.messages), "payload_bytes": by_operation(f.payload_bytes),
        "naks": naks, "rnr_naks": f.rnr_naks,
        "retransmitted": f.retransmitted, "duplicates": f.duplicates,
        "lost": by_operation(f.lost), "missing": f.missing, "not_captured": f.not_captured,
        "lost_unclear": f.lost_unclear, "crossed": f.crossed,
        "recovered_by_nak": f.recovered_by_nak,
        "timeouts": f.timeouts, "timeout_ns": f.timeout_ns, "attempts": f.attempts,
        "restarts": f.restarts,
        "fatal_nak": ldma_nak_reason(f.fatal_nak).decode() if f.fatal_nak else None,
        "is_unanswered": bool(f.is_unanswered), "is_rnr_pending": bool(f.is_rnr_pending),
        "is_lost_at_end": bool(f.is_lost_at_end),
        "open_operation": ldma_operation_names[f.open_operation].decode(),
        "rtt_count": f.rtt_count,
    }


cdef class FlowTable:
    """Takes packets batch by batch; holds numbers, never packets."""

    cdef ldma_flow_table *c

    def __cinit__(self):
        self.c = ldma_flow_table_create()
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        ldma_flow_table_destroy(self.c)

    def add(self, Batch batch not None):
        """Takes every packet of a batch, in order."""
        cdef ldma_batch *b = batch.c
        cdef uint32_t i
        with nogil:
            for i in range(b.count):
                ldma_flow_table_packet(self.c, &b.packets[i])

    def flows(self):
        """Returns the counters of every half, in the order of their first packets."""
        cdef const ldma_flow *flow
        cdef uint32_t index = 0
        halves = []
        while True:
            flow = ldma_flow_table_get(self.c, index)
            if flow == NULL:
                return halves
            halves.append(as_dict(index, flow))
            index += 1

    def totals(self):
        """Returns the counters over all packets."""
        return ldma_flow_table_totals(self.c)

    def rtt_us(self, index, other, per_mille):
        """Returns a quantile of the round trips of one or two halves, or None without samples."""
        cdef const ldma_flow *a = ldma_flow_table_get(self.c, index)
        cdef const ldma_flow *b = NULL
        cdef int64_t ns
        if other is not None:
            b = ldma_flow_table_get(self.c, other)
        if a == NULL:
            raise IndexError(index)
        ns = ldma_flow_rtt_ns(a, b, per_mille)
        return ns / 1000 if ns >= 0 else None
