# SPDX-License-Identifier: BSD-2-Clause
# The port, as the bindings see it. Contracts are in port/port.h.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from livedma._native.rdma cimport Engine, ldma_cq, ldma_device, ldma_device_config

cdef extern from "port/port.h" nogil:
    struct ldma_address:
        uint8_t bytes[16]
        uint32_t scope
        uint8_t ip_version
    enum ldma_port_kind_t "ldma_port_kind":
        LDMA_PORT_AUTO
        LDMA_PORT_UDP
        LDMA_PORT_PACKET
    struct ldma_share:
        pass
    struct ldma_port_config:
        ldma_device_config device
        ldma_address address
        uint32_t interface
        uint8_t kind
        uint32_t spin_us
        const ldma_share *share
    struct ldma_port_counters_t "ldma_port_counters":
        uint64_t received_trains
        uint64_t sent_trains
        uint64_t foreign
        uint64_t overruns
        uint64_t send_errors
        uint64_t strays
        uint64_t sleeps
        uint64_t busy_ns
    struct ldma_port:
        pass
    int ldma_port_open(const ldma_port_config *config, ldma_port **ret)
    void ldma_port_close(ldma_port *port)
    ldma_port_kind_t ldma_port_kind(const ldma_port *port, int *ret_error)
    uint32_t ldma_port_slot(const ldma_port *port)
    ldma_device *ldma_port_lock(ldma_port *port)
    void ldma_port_unlock(ldma_port *port)
    ldma_cq *ldma_port_create_cq(ldma_port *port, uint32_t capacity)
    int ldma_port_wait(ldma_port *port, ldma_cq *cq, uint64_t spin_ns, uint64_t timeout_ns)
    int ldma_port_event_fd(ldma_port *port)
    ldma_cq *ldma_port_next_event(ldma_port *port)
    ldma_port_counters_t ldma_port_counters(ldma_port *port)


cdef extern from "port/socket.h":
    int LDMA_SOCKET_BUFFER_BYTES


cdef class Port(Engine):
    cdef ldma_port *port
    cdef uint32_t users  # threads that are in the port without the interpreter's lock
    cdef bint closing
    cdef readonly str port_kind  # udp or packet
    cdef readonly uint32_t slot  # its number among the processes that share the address
    cdef readonly bint is_shared
    cdef readonly int packet_errno  # what made auto choose udp, or 0

    cdef void destroy(self) noexcept
