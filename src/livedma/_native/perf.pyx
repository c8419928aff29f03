# SPDX-License-Identifier: BSD-2-Clause
"""Runs the loops of `livedma perf`: streams and ping-pongs over connections that exist."""
import errno
from array import array

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from livedma._native.mapped cimport Mapped, ldma_mapped
from livedma._native.pool cimport Pool, ldma_pool
from livedma._native.port cimport Port, ldma_port
from livedma._native.rdma cimport (
    CompletionQueue, QueuePair, Region, check, ldma_cq, ldma_qp, ldma_sge,
)

from livedma._native import rdma as native

cdef extern from "port/perf.h" nogil:
    struct ldma_perf_buffer:
        pass
    struct ldma_perf_peer:
        ldma_qp *qp
        uint64_t remote_va
        uint32_t rkey
    struct ldma_perf:
        ldma_port *port
        ldma_cq *cq
        ldma_perf_peer *peers
        uint32_t peer_count
        uint8_t opcode
        uint32_t depth
        uint32_t receives
        uint64_t iterations
        uint64_t places
        uint64_t stride
        ldma_sge local
        ldma_sge received
        ldma_pool **pools
        ldma_mapped **mapped
        ldma_perf_buffer *buffers
        uint8_t *last_byte_sent
        const uint8_t *last_byte_received
        uint64_t spin_ns
        int is_cancelled
        uint64_t done
        uint64_t started_ns
        uint64_t ended_ns
        uint64_t refill_ns
        uint64_t *posted_ns
        uint64_t *completed_ns
        uint8_t status
    int ldma_perf_stream(ldma_perf *perf)
    double ldma_perf_best_ns(const ldma_perf *perf)
    uint64_t ldma_perf_longest_gap_ns(const ldma_perf *perf)
    int ldma_perf_prepare(ldma_perf *perf)
    int ldma_perf_drain(ldma_perf *perf)
    int ldma_perf_release(ldma_perf *perf)
    int ldma_perf_ping(ldma_perf *perf, bint is_first, uint64_t *ret_ns)

ctypedef int (*loop)(ldma_perf *perf) noexcept nogil


class CompletionError(Exception):
    """A request of a measurement failed; the argument is the name of its status."""


@cython.no_gc_clear  # what it holds must outlive it
cdef class Measurement:
    """Measures from one side, for one message size.

    It sends from the start of the memory and receives at its middle. The methods run without the interpreter's
    lock. One thread at a time may use them; another one ends them with cancel.
    """

    cdef ldma_perf c
    cdef Port port
    cdef object held

    def __init__(self, Port port not None, CompletionQueue cq not None, peers, str operation,
                 memory, uint32_t size, *, uint64_t iterations, uint32_t depth=1,
                 uint32_t receives=1, uint64_t span=0, double spin=0.0, bint keeps_times=False,
                 pools=None):
        """Makes a measurement. peers: (queue pair, remote va, rkey) of each connection. memory: its key, its address
        for the device, and a buffer. span: bytes of the other side's memory that requests use in turn. spin: seconds.
        pools: one for each connection, which gives its Receives buffers of size bytes; all are a Pool or all Mapped."""
        cdef uint8_t[::1] view = memory[2]
        cdef uint64_t middle = view.shape[0] // 2
        cdef uint32_t i
        cdef QueuePair qp
        if self.held is not None:
            raise ValueError("the measurement is set up already")
        if not 0 < size <= middle:
            raise ValueError("the memory has no room for two messages of this size")
        if not peers or not iterations or not depth or not receives:
            raise ValueError("nothing to measure")
        if pools is not None and len(pools) != len(peers):
            raise ValueError("there is one pool for each connection")
        self.held = (cq, view, [qp for qp, _, _ in peers], pools)
        self.port = port
        self.c.port, self.c.cq, self.c.opcode = port.port, cq.live(), native.OPERATIONS[operation]
        self.c.depth, self.c.receives, self.c.iterations = depth, receives, iterations
        self.c.stride = self.stride(size)
        self.c.places = span // self.c.stride
        self.c.local.lkey, self.c.local.va, self.c.local.length = memory[0], memory[1], size
        self.c.received.va = self.c.local.va + middle
        self.c.received.length, self.c.received.lkey = min(middle, 0x80000000), memory[0]
        self.c.last_byte_sent = &view[size - 1]
        self.c.last_byte_received = &view[middle + size - 1]
        self.c.spin_ns = <uint64_t>(min(max(spin, 0.0), 1e6) * 1e9)
        self.c.peers = <ldma_perf_peer *>PyMem_Calloc(len(peers), sizeof(ldma_perf_peer))
        if keeps_times:
            self.c.posted_ns = <uint64_t *>PyMem_Calloc(iterations, sizeof(uint64_t))
            self.c.completed_ns = <uint64_t *>PyMem_Calloc(iterations, sizeof(uint64_t))
        if pools is not None:
            self.use(pools, size, receives)
        if self.c.peers == NULL or keeps_times and not (self.c.posted_ns and self.c.completed_ns):
            raise MemoryError
        for i, (qp, va, rkey) in enumerate(peers):
            self.c.peers[i].qp, self.c.peers[i].remote_va, self.c.peers[i].rkey = qp.live(), va, rkey
        self.c.peer_count = len(peers)

    cdef int use(self, pools, uint32_t size, uint32_t receives) except -1:
        cdef bint is_mapped = isinstance(pools[0], Mapped)
        cdef uint32_t i
        cdef void **sources = <void **>PyMem_Calloc(len(pools), sizeof(void *))
        if is_mapped:
            self.c.mapped = <ldma_mapped **>sources
        else:
            self.c.pools = <ldma_pool **>sources
        self.c.received.length = size
        self.c.buffers = <ldma_perf_buffer *>PyMem_Calloc(
            len(pools) * receives, sizeof(ldma_perf_buffer))
        if sources == NULL or self.c.buffers == NULL:
            raise MemoryError
        for i in range(len(pools)):
            if is_mapped:
                self.c.mapped[i] = (<Mapped?>pools[i]).live()
            else:
                self.c.pools[i] = (<Pool?>pools[i]).live()
        return 0

    @staticmethod
    def stride(uint32_t size):
        """Returns the bytes from one place to the next that requests of this size use in turn."""
        return (size + 63) // 64 * 64

    def __dealloc__(self):
        PyMem_Free(self.c.peers)
        PyMem_Free(self.c.pools)
        PyMem_Free(self.c.mapped)
        PyMem_Free(self.c.buffers)
        PyMem_Free(self.c.posted_ns)
        PyMem_Free(self.c.completed_ns)

    def cancel(self):
        """Ends the loop that runs, and all that follow, with a KeyboardInterrupt."""
        self.c.is_cancelled = 1

    @property
    def done(self):
        return self.c.done

    @property
    def elapsed_ns(self):
        return self.c.ended_ns - self.c.started_ns

    @property
    def longest_gap_ns(self):
        """Is the longest time in which nothing completed; 0 unless times were kept."""
        return ldma_perf_longest_gap_ns(&self.c)

    @property
    def refill_ns(self):
        """Is the time in which `drain` posted Receives in place of those that were used."""
        return self.c.refill_ns

    @property
    def best_ns(self):
        """Is the shortest time that a message took when many were under way; 0 unless times were kept."""
        cdef double best
        with nogil:
            best = ldma_perf_best_ns(&self.c)
        return best

    cdef int run(self, loop what, bint is_ping=False, bint is_first=False,
                 uint64_t *times=NULL) except -1:
        cdef int result
        if self.port.closed:
            raise ValueError("the device is closed")
        self.port.users += 1
        with nogil:
            result = ldma_perf_ping(&self.c, is_first, times) if is_ping else what(&self.c)
        self.port.users -= 1
        if result == -errno.EIO:
            raise CompletionError(native.STATUSES[self.c.status])
        if result == -errno.ETIMEDOUT:
            raise TimeoutError("nothing happened for ten seconds")
        if result == -errno.ECANCELED:
            raise KeyboardInterrupt
        return check(result)

    def prepare(self):
        """Posts the Receives. It is called once for all sizes, before the other side begins to SEND."""
        self.run(ldma_perf_prepare)

    def stream(self):
        """Keeps depth requests under way on every connection."""
        self.run(ldma_perf_stream)

    def drain(self):
        """Receives the other side's stream of SENDs."""
        self.run(ldma_perf_drain)

    def release(self):
        """Gives the Receives' buffers back to their pools, once their queue pairs are closed."""
        check(ldma_perf_release(&self.c))

    def ping(self, bint is_first):
        """Sends one message at a time, on the first connection. The first side gets the nanoseconds of each."""
        cdef uint64_t[::1] view
        if not is_first:
            self.run(NULL, True)
            return array("Q")
        times = array("Q", (0,)) * self.c.iterations
        view = times
        self.run(NULL, True, True, &view[0])
        return times
