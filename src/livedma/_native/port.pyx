"""The device on a wire: an engine behind a socket, served by a thread of its own and by whoever waits."""
from ipaddress import ip_address

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from livedma._native.rdma cimport (
    CompletionQueue, Engine, check, ldma_cq, ldma_device, ldma_device_config,
)

cdef extern from "port.h" nogil:
    struct ldma_address:
        uint8_t bytes[16]
        uint32_t scope
        uint8_t ip_version
    struct ldma_port_config:
        ldma_device_config device
        ldma_address address
        uint32_t spin_us
        bint shares
    struct ldma_port_counters_t "ldma_port_counters":
        uint64_t received_trains
        uint64_t sent_trains
        uint64_t foreign
        uint64_t send_errors
        uint64_t sleeps
    struct ldma_port:
        pass
    int ldma_port_open(const ldma_port_config *config, ldma_port **ret)
    void ldma_port_close(ldma_port *port)
    ldma_device *ldma_port_lock(ldma_port *port)
    void ldma_port_unlock(ldma_port *port)
    ldma_cq *ldma_port_create_cq(ldma_port *port, uint32_t capacity)
    int ldma_port_wait(ldma_port *port, ldma_cq *cq, uint64_t spin_ns, uint64_t timeout_ns)
    int ldma_port_event_fd(ldma_port *port)
    ldma_cq *ldma_port_next_event(ldma_port *port)
    ldma_port_counters_t ldma_port_counters(ldma_port *port)

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int microseconds)

# So often a thread that waits looks whether a signal came.
cdef uint64_t SIGNAL_NS = 50_000_000


cdef class Port(Engine):
    """A device at one address. All calls may be made by any thread."""

    cdef ldma_port *port
    cdef uint32_t users  # threads that are in the port without the interpreter's lock
    cdef bint closing

    def __init__(self, address, *, uint32_t scope=0, uint32_t max_qp=16384, uint32_t max_region=65536,
                 uint32_t window_packets=0, uint32_t spin_us=50, bint shares=False):
        cdef ldma_port_config config
        cdef bytes packed = ip_address(address).packed
        if self.port != NULL:
            raise ValueError("the port is open already")
        memset(&config, 0, sizeof(config))
        memcpy(config.address.bytes, PyBytes_AS_STRING(packed), len(packed))
        config.address.scope = scope
        config.address.ip_version = 4 if len(packed) == 4 else 6
        config.device.max_qp, config.device.max_region = max_qp, max_region
        config.device.window_packets = window_packets
        config.spin_us, config.shares = spin_us, shares
        check(ldma_port_open(&config, &self.port))
        self.c = ldma_port_lock(self.port)
        ldma_port_unlock(self.port)
        self.source, self.sport = str(ip_address(address)), 4791

    def __dealloc__(self):
        self.destroy()

    cdef void destroy(self) noexcept:
        self.c = NULL  # the port's, which destroys it
        if self.port != NULL:
            with nogil:
                ldma_port_close(self.port)
        self.port = NULL

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
        """Closes what was made on it, then the device itself. Who waits gets an error."""
        if self.closed:
            return
        self.closing = True
        while self.users:
            with nogil:
                usleep(1000)
        self.close_children()
        self.destroy()

    def wait(self, CompletionQueue cq not None, timeout=None, spin=0.0):
        """Whether the queue has a completion; serves the port for spin seconds, then sleeps, until timeout seconds went by."""
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
            if result < 0:  # a signal that is nobody's concern
                result = 0
        return result > 0

    def fileno(self):
        """Becomes readable when an armed queue has its event."""
        if self.port == NULL:
            raise ValueError("the device is closed")
        return ldma_port_event_fd(self.port)

    def next_event(self):
        """The next queue whose event came, or None."""
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
        """Of the port itself; those of the device are in counters."""
        cdef ldma_port_counters_t c
        if self.port == NULL:
            raise ValueError("the device is closed")
        c = ldma_port_counters(self.port)
        return {
            "received_trains": c.received_trains, "sent_trains": c.sent_trains,
            "foreign": c.foreign, "send_errors": c.send_errors, "sleeps": c.sleeps,
        }
