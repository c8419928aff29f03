# SPDX-License-Identifier: BSD-2-Clause
# The C core's device, as the bindings see it. Contracts are in device/device.h, device/qp.h, device/cq.h and memory/iova.h.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from livedma._native.packet cimport ldma_packet

cdef extern from *:
    """
    #include "device/device.h"
    static const struct { const char *name; size_t offset; } ldma_counter_names[] = {
    #define COUNTER(name) {#name, offsetof(struct ldma_counters, name)},
    #include "device/counters.def"
    };
    #define LDMA_COUNTER_COUNT (sizeof(ldma_counter_names) / sizeof(ldma_counter_names[0]))
    static const struct { const char *name; int value; } ldma_statuses[] = {
    #define X(name, value) {#name, value},
    LDMA_WC_STATUSES(X)
    #undef X
    };
    #define LDMA_STATUS_COUNT (sizeof(ldma_statuses) / sizeof(ldma_statuses[0]))
    static const struct { const char *name; int value; } ldma_event_types[] = {
    #define X(name, value) {#name, value},
    LDMA_EVENT_TYPES(X)
    #undef X
    };
    #define LDMA_EVENT_TYPE_COUNT (sizeof(ldma_event_types) / sizeof(ldma_event_types[0]))
    static const struct ldma_counters *ldma_qp_counters(const struct ldma_qp *qp)
    {
        return &qp->counters;
    }
    static const struct ldma_counters *ldma_device_counters(const struct ldma_device *device)
    {
        return &device->counters;
    }
    static struct ldma_iova *ldma_device_iova(struct ldma_device *device)
    {
        return &device->iova;
    }
    static uint32_t ldma_qp_window(const struct ldma_qp *qp)
    {
        return qp->req.congestion.packets;
    }
    """
    struct counter_name:
        const char *name
        size_t offset
    struct status_name:
        const char *name
        int value
    const counter_name *ldma_counter_names
    const status_name *ldma_statuses
    const status_name *ldma_event_types
    size_t LDMA_COUNTER_COUNT, LDMA_STATUS_COUNT, LDMA_EVENT_TYPE_COUNT
    const ldma_counters *ldma_qp_counters(const ldma_qp *qp)
    const ldma_counters *ldma_device_counters(const ldma_device *device)
    ldma_iova *ldma_device_iova(ldma_device *device)
    uint32_t ldma_qp_window(const ldma_qp *qp)

cdef extern from "device/device.h" nogil:
    int LDMA_PACKET_MAX, LDMA_MAX_SGE
    uint64_t LDMA_NEVER

    struct ldma_counters:
        pass
    struct ldma_iova:
        uint64_t hits
        uint64_t misses
    struct ldma_pd:
        uint32_t users
    ldma_pd *ldma_pd_create()
    int ldma_pd_destroy(ldma_pd *pd)
    int ldma_iova_register(ldma_iova *iova, ldma_pd *pd, void *memory, uint64_t va,
                           uint64_t length, uint32_t access, uint32_t random_key)
    int ldma_iova_deregister(ldma_iova *iova, uint32_t key)

    struct ldma_wc:
        uint64_t wr_id
        uint32_t byte_length
        uint32_t qp_num
        uint32_t src_qp
        uint32_t imm
        uint8_t status
        uint8_t opcode
        uint8_t flags
        bint is_solicited
    struct ldma_cq:
        uint32_t users
        uint32_t lost
    struct ldma_cq_channel:
        pass
    ldma_cq *ldma_cq_create(uint32_t capacity, ldma_cq_channel *channel)
    int ldma_cq_destroy(ldma_cq *cq)
    uint32_t ldma_cq_poll(ldma_cq *cq, ldma_wc *ret, uint32_t count)
    void ldma_cq_arm(ldma_cq *cq, int what)
    bint ldma_cq_take_event(ldma_cq *cq)

    struct ldma_sge:
        uint64_t va
        uint32_t length
        uint32_t lkey
    struct ldma_path:
        uint8_t ip_version
        uint8_t tos
        uint8_t ttl
        uint16_t sport
        uint8_t src[16]
        uint8_t dst[16]
    struct ldma_send_wr:
        uint64_t wr_id
        const ldma_sge *sge
        const void *inline_data
        uint32_t sge_count
        uint32_t inline_length
        uint8_t opcode
        uint8_t flags
        uint32_t imm
        uint64_t remote_va
        uint32_t rkey
        uint64_t compare
        uint64_t swap_add
        const ldma_path *path
        uint32_t remote_qp
        uint32_t remote_qkey
    struct ldma_recv_wr:
        uint64_t wr_id
        const ldma_sge *sge
        uint32_t sge_count
    struct ldma_rq:
        uint32_t users
    int ldma_rq_init(ldma_rq *rq, ldma_pd *pd, uint32_t depth, uint32_t max_sge)
    void ldma_rq_destroy(ldma_rq *rq)
    void ldma_rq_set_limit(ldma_rq *rq, uint32_t limit)
    int ldma_rq_post(ldma_rq *rq, const ldma_recv_wr *wr)

    struct ldma_qp_attr:
        uint32_t optional
        uint32_t access
        uint32_t qkey
        uint16_t pkey
        uint32_t mtu
        ldma_path path
        uint32_t dest_qp
        uint32_t rq_psn
        uint32_t sq_psn
        uint8_t max_dest_rd_atomic
        uint8_t max_rd_atomic
        uint8_t min_rnr_timer
        uint8_t timeout
        uint8_t retry_count
        uint8_t rnr_retry
    struct ldma_qp_init:
        uint8_t type
        bint signals_all
        ldma_pd *pd
        ldma_cq *send_cq
        ldma_cq *recv_cq
        ldma_rq *srq
        uint32_t max_send
        uint32_t max_recv
        uint32_t max_send_sge
        uint32_t max_recv_sge
        uint32_t max_inline
    enum ldma_qp_state:
        pass
    struct ldma_qp:
        uint32_t number
        uint8_t state
    int ldma_qp_modify(ldma_qp *qp, ldma_qp_state state, const ldma_qp_attr *attr)
    int ldma_qp_post_send(ldma_qp *qp, const ldma_send_wr *wr)
    int ldma_qp_post_recv(ldma_qp *qp, const ldma_recv_wr *wr)
    bint ldma_qp_is_drained(const ldma_qp *qp)

    struct ldma_device_config:
        uint32_t max_qp
        uint32_t max_region
        uint32_t window_packets
        uint32_t read_packets
        uint32_t burst_packets
        uint32_t first_qp
        uint32_t last_qp
        uint32_t next_qp
        uint64_t iova_space
    struct ldma_device:
        pass
    ldma_device *ldma_device_create(const ldma_device_config *config)
    void ldma_device_destroy(ldma_device *device)
    int ldma_device_create_qp(ldma_device *device, const ldma_qp_init *init, ldma_qp **ret)
    void ldma_device_destroy_qp(ldma_qp *qp)
    struct ldma_event:
        uint8_t type
        uint32_t qp_num
    bint ldma_device_poll_event(ldma_device *device, ldma_event *ret)
    void ldma_device_forget_events(ldma_device *device, const void *object)
    void ldma_device_receive(ldma_device *device, const ldma_packet *packet, uint64_t now_ns)
    bint ldma_device_flush_acks(ldma_device *device)
    size_t ldma_device_transmit(ldma_device *device, uint8_t *buf, uint64_t now_ns,
                                ldma_qp **ret_qp)
    uint64_t ldma_device_next_timer(ldma_device *device)


cdef class ProtectionDomain:
    cdef ldma_pd *c

    cdef ldma_pd *live(self) except NULL


cdef class Engine:
    cdef ldma_device *c
    cdef readonly ProtectionDomain domain
    cdef readonly str source
    cdef readonly uint16_t sport
    cdef object children
    cdef object queues
    cdef object __weakref__

    cdef int acquire(self) except -1
    cdef void release(self) noexcept
    cdef ldma_cq *make_cq(self, uint32_t capacity) except? NULL
    cdef int close_children(self) except -1


cdef class CompletionQueue:
    cdef ldma_cq *c
    cdef Engine engine
    cdef uint32_t waiting
    cdef object __weakref__

    cdef ldma_cq *live(self) except NULL
    cdef int destroy(self) except -1


cdef class Region:
    cdef Engine engine
    cdef ProtectionDomain domain
    cdef Py_buffer view
    cdef readonly uint32_t key
    cdef readonly uint64_t va
    cdef readonly uint64_t length
    cdef object __weakref__

    cdef int destroy(self) except -1


cdef class SharedReceives:
    cdef ldma_rq c
    cdef Engine engine
    cdef ProtectionDomain domain


cdef class QueuePair:
    cdef Engine engine
    cdef ProtectionDomain domain
    cdef ldma_qp *c
    cdef readonly CompletionQueue send_cq
    cdef readonly CompletionQueue recv_cq
    cdef readonly SharedReceives srq
    cdef object __weakref__

    cdef ldma_qp *live(self) except NULL
    cdef int destroy(self) except -1


cdef int check(int result) except -1
cdef uint32_t rights(access) except? 0xffffffff
cdef uint32_t random_key() except 0
cdef dict counters(const ldma_counters *c)
