# SPDX-License-Identifier: BSD-2-Clause
"""Reads a tap on a livedma device, and holds the filters that any capture may have."""
from ipaddress import ip_address
from os import strerror

from cpython.bytes cimport PyBytes_AsString
from libc.string cimport memcpy, memset

from livedma._native.capture_config cimport *
from livedma._native.packet cimport *
from livedma._native.wire cimport Batch


cdef extern from "bpf/capture_match.h" nogil:
    ctypedef unsigned long long __u64
    bint ldma_capture_takes_addresses(const ldma_capture_config *config, uint32_t ip_version,
                                      const __u64 *src, const __u64 *dst)
    bint ldma_capture_takes_transport(const ldma_capture_config *config, uint32_t operation,
                                      uint32_t dest_qp, uint32_t src_qp)


cdef extern from "port/tap_reader.h" nogil:
    int LDMA_TAPS, LDMA_TAP_RING_BYTES

    struct ldma_address:
        uint8_t bytes[16]
        uint32_t scope
        uint8_t ip_version

    struct ldma_tap_options:
        ldma_address address
        ldma_capture_config config
        uint32_t ring_bytes
        bint rx
        bint tx

    struct ldma_tap_reader:
        pass

    int ldma_tap_reader_open(const ldma_tap_options *options, ldma_tap_reader **ret)
    void ldma_tap_reader_close(ldma_tap_reader *reader)
    int ldma_tap_reader_connect(ldma_tap_reader *reader, int timeout_ms)
    int ldma_tap_reader_poll(ldma_tap_reader *reader, ldma_batch *batch, int timeout_ms)
    bint ldma_tap_reader_is_gone(const ldma_tap_reader *reader)
    void ldma_tap_reader_detach(ldma_tap_reader *reader)
    ldma_capture_counters ldma_tap_reader_counters(const ldma_tap_reader *reader)


PREFIXES_MAX = LDMA_CAPTURE_PREFIXES
QPS_MAX = LDMA_CAPTURE_QPS
SNAPLEN_MIN = LDMA_CAPTURE_SNAPLEN_MIN
SNAPLEN_MAX = LDMA_CAPTURE_SNAPLEN_MAX
OPERATIONS = {ldma_operation_names[i].decode(): i for i in range(LDMA_OP_COUNT)}
TAPS_MAX = LDMA_TAPS
RING_BYTES = LDMA_TAP_RING_BYTES
LINK = LDMA_LINK_RAW


cdef class Selection:
    """Picks those packets of a batch that a live capture with the same filters takes."""

    cdef ldma_capture_config config

    def __cinit__(self, *, prefixes=(), qps=(), uint32_t operations=0):
        memset(&self.config, 0, sizeof(self.config))
        fill_config(&self.config, prefixes, qps, operations, 1, LDMA_CAPTURE_SNAPLEN_MAX)

    def keep(self, Batch batch not None):
        """Takes all other packets out of the batch; returns how many those were."""
        cdef uint32_t kept = 0, count = batch.c.count, i
        cdef ldma_packet *packets = batch.c.packets
        with nogil:
            for i in range(count):
                if not self.takes(&packets[i]):
                    continue
                if kept != i:
                    packets[kept] = packets[i]
                kept += 1
        batch.c.count = kept
        return count - kept

    cdef bint takes(self, const ldma_packet *packet) noexcept nogil:
        # A packet that ends before its BTH does is of no known operation and to no queue pair.
        cdef uint32_t operation = 0, dest_qp = 0, src_qp = 0
        cdef __u64 src[2]
        cdef __u64 dst[2]
        memcpy(src, packet.src, sizeof(src))
        memcpy(dst, packet.dst, sizeof(dst))
        if packet.seen & LDMA_SEEN_BTH:
            operation = ldma_opcodes[packet.opcode].operation
            dest_qp = packet.dest_qp
            if packet.headers & LDMA_HAS_DETH:
                src_qp = packet.src_qp
        return (ldma_capture_takes_addresses(&self.config, packet.ip_version, src, dst)
                and ldma_capture_takes_transport(&self.config, operation, dest_qp, src_qp))


cdef class TapSession:
    """Receives the packets of the device at an address in a ring, once connect() returned True."""

    cdef ldma_tap_reader *c

    def __cinit__(self, str address, *, uint32_t scope=0, bint rx=True, bint tx=True,
                  uint32_t ring_bytes=0, uint32_t snaplen=LDMA_CAPTURE_SNAPLEN_MAX,
                  uint32_t sample=1, prefixes=(), qps=(), uint32_t operations=0):
        cdef ldma_tap_options options
        cdef bytes packed = ip_address(address).packed
        cdef int error
        memset(&options, 0, sizeof(options))
        memcpy(options.address.bytes, PyBytes_AsString(packed), len(packed))
        options.address.scope = scope
        options.address.ip_version = 4 if len(packed) == 4 else 6
        fill_config(&options.config, prefixes, qps, operations, sample, snaplen)
        options.ring_bytes = ring_bytes
        options.rx = rx
        options.tx = tx
        with nogil:
            error = ldma_tap_reader_open(&options, &self.c)
        if error:
            raise OSError(-error, strerror(-error))

    def __dealloc__(self):
        ldma_tap_reader_close(self.c)

    cdef ldma_tap_reader *open(self) except NULL:
        if self.c == NULL:
            raise ValueError("the tap is closed")
        return self.c

    def connect(self, int timeout_ms=0):
        """Returns whether the device is tapped now; False if there was none within the timeout. OSError: it will not
        be."""
        cdef ldma_tap_reader *c = self.open()
        cdef int result
        with nogil:
            result = ldma_tap_reader_connect(c, timeout_ms)
        if result < 0:
            raise OSError(-result, strerror(-result))
        return result > 0

    def poll(self, Batch batch not None, int timeout_ms=100, uint32_t limit=0xffffffff):
        """Refills the batch with at most `limit` packets; returns how many, 0 after the timeout or a signal."""
        cdef ldma_tap_reader *c = self.open()
        cdef uint32_t capacity = batch.c.capacity
        cdef int added
        ldma_batch_reset(batch.c)
        batch.keep = None
        with nogil:
            batch.c.capacity = min(capacity, limit)
            added = ldma_tap_reader_poll(c, batch.c, timeout_ms)
            batch.c.capacity = capacity
        if added < 0:
            raise OSError(-added, strerror(-added))
        return added

    @property
    def gone(self):
        """Tells whether the tap has ended: the device closed, or detach() was called."""
        return ldma_tap_reader_is_gone(self.open())

    def detach(self):
        """Ends the tap; what is in the ring can still be polled."""
        cdef ldma_tap_reader *c = self.open()
        with nogil:
            ldma_tap_reader_detach(c)

    def close(self):
        """Ends the tap and frees its ring. Calling it again has no effect."""
        cdef ldma_tap_reader *c = self.c
        self.c = NULL
        ldma_tap_reader_close(c)

    def counters(self):
        """Returns what the device counted for this tap; the figures are final once it is gone."""
        return ldma_tap_reader_counters(self.open())
