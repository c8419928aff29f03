# SPDX-License-Identifier: BSD-2-Clause
"""Runs the BPF programs of a live capture."""
from libc.string cimport memset

from livedma._native.capture_config cimport *
from livedma._native.packet cimport *
from livedma._native.wire cimport Batch


cdef extern from "bpf/capture_session.h" nogil:
    int CAPTURE_RING_BYTES_DEFAULT

    struct capture_error:
        char *text

    struct capture_options:
        ldma_capture_config config
        uint32_t ring_bytes
        bint rx
        bint tx
        bint rx_by_tc
        bint native_only
        bint replace
        bint without_links
        bint verbose

    struct capture_foreign:
        uint32_t id
        bint by_link
        char *name

    struct capture_session:
        pass

    int capture_session_open(const capture_options *options, capture_session **ret,
                             capture_error *error)
    int capture_session_attach(capture_session *session, uint32_t ifindex, capture_error *error)
    int capture_session_detach(capture_session *session, capture_error *error)
    void capture_session_close(capture_session *session)
    int capture_session_rx_mode(const capture_session *session)
    int capture_session_tx_mode(const capture_session *session)
    const capture_foreign *capture_session_foreign(const capture_session *session)
    int capture_session_poll(capture_session *session, ldma_batch *batch, int timeout_ms)
    int capture_session_counters(const capture_session *session, ldma_capture_counters *ret)


RING_BYTES = CAPTURE_RING_BYTES_DEFAULT
MODES = (None, "native XDP", "generic XDP", "tcx", "clsact")


cdef class CaptureSession:
    """Holds the loaded programs of a capture, attached to one interface at a time.

    An OSError carries one sentence that says what is wrong and what to do.
    """

    cdef capture_session *c

    def __cinit__(self, *, bint rx, bint tx, bint rx_by_tc=False, bint native_only=False,
                  bint replace=False, bint without_links=False, bint verbose=False,
                  uint32_t ring_bytes=0, uint32_t snaplen=LDMA_CAPTURE_SNAPLEN_MAX,
                  uint32_t sample=1, prefixes=(), qps=(), uint32_t operations=0):
        cdef capture_options options
        cdef capture_error error
        cdef int err
        memset(&options, 0, sizeof(options))
        fill_config(&options.config, prefixes, qps, operations, sample, snaplen)
        options.ring_bytes = ring_bytes
        options.rx = rx
        options.tx = tx
        options.rx_by_tc = rx_by_tc
        options.native_only = native_only
        options.replace = replace
        options.without_links = without_links
        options.verbose = verbose
        with nogil:
            err = capture_session_open(&options, &self.c, &error)
        if err:
            raise OSError(-err, error.text.decode())

    def __dealloc__(self):
        capture_session_close(self.c)

    cdef capture_session *open(self) except NULL:
        if self.c == NULL:
            raise ValueError("the capture session is closed")
        return self.c

    def attach(self, uint32_t ifindex):
        """Attaches to an interface, detaching from the one before."""
        cdef capture_session *c = self.open()
        cdef capture_error error
        cdef int err
        with nogil:
            err = capture_session_attach(c, ifindex, &error)
        if err:
            raise OSError(-err, error.text.decode())

    def detach(self):
        cdef capture_error error
        cdef int err = capture_session_detach(self.open(), &error)
        if err:
            raise OSError(-err, error.text.decode())

    def close(self):
        """Detaches and frees everything. Calling it again has no effect."""
        cdef capture_session *c = self.c
        if c == NULL:
            return
        try:
            self.detach()
        finally:
            self.c = NULL
            capture_session_close(c)

    @property
    def rx_mode(self):
        return MODES[capture_session_rx_mode(self.open())]

    @property
    def tx_mode(self):
        return MODES[capture_session_tx_mode(self.open())]

    @property
    def foreign(self):
        """Returns the XDP program that the last attach found: (id, name, held by a link), or None."""
        cdef const capture_foreign *foreign = capture_session_foreign(self.open())
        if not foreign.id:
            return None
        return foreign.id, foreign.name.decode(errors="replace"), foreign.by_link

    def poll(self, Batch batch not None, int timeout_ms=100, uint32_t limit=0xffffffff):
        """Refills the batch with at most `limit` packets; returns how many, 0 after the timeout or a signal."""
        cdef capture_session *c = self.open()
        cdef uint32_t capacity = batch.c.capacity
        cdef int added
        ldma_batch_reset(batch.c)
        batch.keep = None
        with nogil:
            batch.c.capacity = min(capacity, limit)
            added = capture_session_poll(c, batch.c, timeout_ms)
            batch.c.capacity = capacity
        if added < 0:
            raise OSError(-added, "the ring buffer cannot be read")
        return added

    def counters(self):
        """Returns what the programs counted since they were loaded."""
        cdef ldma_capture_counters counters
        cdef int err = capture_session_counters(self.open(), &counters)
        if err:
            raise OSError(-err, "the capture's counters cannot be read")
        return counters
