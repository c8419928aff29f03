# SPDX-License-Identifier: BSD-2-Clause
"""Puts the device on a wire: a thread of its own, and each thread that waits, serve an engine behind a socket."""
from ipaddress import ip_address

from cpython.bytes cimport PyBytes_AsString
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from livedma._native.rdma cimport CompletionQueue, Engine, check, ldma_cq

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int microseconds)

KINDS = {"auto": LDMA_PORT_AUTO, "udp": LDMA_PORT_UDP, "packet": LDMA_PORT_PACKET}

# The interval at which a thread that waits checks for signals.
cdef uint64_t SIGNAL_NS = 50_000_000

#: Bytes that a port asks the system for, each way; it may get less.
SOCKET_BUFFER_BYTES = LDMA_SOCKET_BUFFER_BYTES


cdef class Port(Engine):
    """Runs a device at one address. Any thread may make all calls."""

    def __init__(self, address, *, uint32_t scope=0, uint32_t interface=0, str kind="auto",
                 uint32_t max_qp=16384, uint32_t max_region=65536,
                 uint32_t window_packets=0, uint32_t spin_us=50, object share=None):
        cdef ldma_port_config config
        cdef bytes packed = ip_address(address).packed
        cdef int error
        if self.port != NULL:
            raise ValueError("the port is open already")
        memset(&config, 0, sizeof(config))
        memcpy(config.address.bytes, PyBytes_AsString(packed), len(packed))
        config.address.scope = scope
        config.interface, config.kind = interface, KINDS[kind]
        config.address.ip_version = 4 if len(packed) == 4 else 6
        config.device.max_qp, config.device.max_region = max_qp, max_region
        config.device.window_packets = window_packets
        config.spin_us = spin_us
        if share is not None:  # a capsule, since the extension that makes it needs libbpf and may be missing
            config.share = <const ldma_share *>PyCapsule_GetPointer(share, "ldma_share")
        with nogil:  # a thread of this process may wait to tap it
            error = ldma_port_open(&config, &self.port)
        check(error)
        self.c = ldma_port_lock(self.port)
        ldma_port_unlock(self.port)
        self.port_kind = (
            "packet" if ldma_port_kind(self.port, &self.packet_errno) == LDMA_PORT_PACKET else "udp"
        )
        self.slot, self.is_shared = ldma_port_slot(self.port), share is not None
        self.source, self.sport = str(ip_address(address)), 4791

    def __dealloc__(self):
        self.destroy()

    cdef void destroy(self) noexcept:
        cdef ldma_port *port = self.port
        self.port, self.c = NULL, NULL  # first, before other threads run; the port owns the device
        if port != NULL:
            with nogil:
                ldma_port_close(port)

    cdef int acquire(self) except -1:
        if self.port == NULL:
            raise ValueError("the device is closed")
        ldma_port_lock(self.port)
        return 0

    cdef void release(self) noexcept:
        ldma_port_unlock(self.port)

    cdef ldma_cq *make_cq(self, uint32_t capacity) except? NULL:
        if self.port == NULL:
            raise ValueError("the device is closed")
        return ldma_port_create_cq(self.port, capacity)

    @property
    def closed(self):
        return self.closing or self.port == NULL

    def close(self):
        """Closes what was made on it, then the device itself. Calls that wait get an error."""
        if self.closed:
            return
        self.closing = True
        while self.users:
            with nogil:
                usleep(1000)
        self.close_children()
        self.destroy()

    def wait(self, CompletionQueue cq not None, timeout=None, spin=0.0):
        """Waits until the queue has a completion: serves the port for spin seconds, then sleeps. Returns False if
        timeout seconds went by."""
        cdef ldma_cq *c = cq.live()
        cdef uint64_t spin_ns = <uint64_t>(spin * 1e9)
        cdef uint64_t left_ns = UINT64_MAX if timeout is None else <uint64_t>(max(timeout, 0) * 1e9)
        cdef uint64_t slice_ns
        cdef int result = 0
        while not result:
            if self.closed:
                raise ValueError("the device is closed")
            slice_ns = min(left_ns, SIGNAL_NS)
            self.users += 1
            cq.waiting += 1
            with nogil:
                result = ldma_port_wait(self.port, c, spin_ns, slice_ns)
            cq.waiting -= 1
            self.users -= 1
            PyErr_CheckSignals()
            if left_ns == slice_ns:
                break
            if left_ns != UINT64_MAX:
                left_ns -= slice_ns
            spin_ns -= min(spin_ns, slice_ns)
            if result < 0:  # a signal interrupted the wait, and no handler raised
                result = 0
        return result > 0

    def fileno(self):
        """Returns a descriptor that becomes readable when an armed queue has its event."""
        if self.port == NULL:
            raise ValueError("the device is closed")
        return ldma_port_event_fd(self.port)

    def next_event(self):
        """Returns the next queue whose event came, or None."""
        cdef ldma_cq *c
        while self.port != NULL:
            c = ldma_port_next_event(self.port)
            if c == NULL:
                break
            queue = self.queues.get(<size_t>c)
            if queue is not None:
                return queue
        return None

    def open_queues(self):
        return list(self.queues.values())

    @property
    def port_counters(self):
        """Has the port's own counters; those of the device are in `counters`."""
        cdef ldma_port_counters_t c
        if self.port == NULL:
            raise ValueError("the device is closed")
        c = ldma_port_counters(self.port)
        return {
            "received_trains": c.received_trains, "sent_trains": c.sent_trains,
            "foreign": c.foreign, "overruns": c.overruns, "send_errors": c.send_errors,
            "strays": c.strays, "sleeps": c.sleeps, "busy_ns": c.busy_ns,
        }
