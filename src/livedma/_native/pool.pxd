# SPDX-License-Identifier: BSD-2-Clause
"""memory/pool.h, and Python's pool for other bindings."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from livedma._native.histogram cimport ldma_histogram

cdef extern from "memory/pool.h" nogil:
    int LDMA_POOL_DATA, LDMA_POOL_CONTROL, LDMA_POOL_ALIGN, LDMA_POOL_EVENT_COUNT
    int LDMA_POOL_SHARD_BUFFERS_MAX, LDMA_POOL_BUFFERS_MAX
    uint32_t LDMA_POOL_NONE
    const char *const *ldma_pool_event_names

    struct ldma_pool_event:
        uint64_t time_ns
        uint64_t value
        uint32_t pool
        uint32_t shard
        uint32_t buffer
        uint8_t kind
        uint8_t is_control

    struct ldma_pool_log:
        pass
    int ldma_pool_log_attach(ldma_pool_log *log, uint32_t capacity)
    void ldma_pool_log_detach(ldma_pool_log *log)
    uint32_t ldma_pool_log_read(ldma_pool_log *log, ldma_pool_event *ret, uint32_t count,
                                uint64_t *lost)

    struct ldma_pool:
        pass
    struct ldma_pool_config:
        uint32_t number
        uint32_t buffer_bytes
        uint32_t shard_buffers
        uint32_t reserve
        uint32_t minimum
        uint32_t maximum
        uint64_t (*now_ns)() noexcept nogil
        void (*call_owner)(void *owner) noexcept nogil
        void *owner
        ldma_pool_log *log
    struct ldma_pool_shard:
        uint8_t *memory
        uint64_t va
        uint32_t lkey
        uint32_t rkey
        uint32_t buffers
    struct ldma_pool_buffer:
        uint8_t *memory
        uint64_t va
        uint64_t handle
        uint32_t lkey
        uint32_t rkey
    struct ldma_pool_waiter:
        int result
        ldma_pool_buffer buffer
        uint64_t waited_ns
    struct ldma_pool_stats:
        uint32_t shards
        uint32_t idle_shards
        uint32_t buffers
        uint32_t free
        uint32_t *taken
        uint32_t *waiting
        uint64_t *oldest_ns
        uint64_t *takes
        uint64_t *gave_up
        uint64_t returns
        uint64_t refused
        uint64_t shards_added
        uint64_t shards_removed
    int ldma_pool_create(const ldma_pool_config *config, ldma_pool **ret)
    void ldma_pool_close(ldma_pool *pool)
    void ldma_pool_destroy(ldma_pool *pool)
    int ldma_pool_take(ldma_pool *pool, int class_, ldma_pool_buffer *ret)
    int ldma_pool_return(ldma_pool *pool, uint64_t handle)
    int ldma_pool_wait(ldma_pool *pool, int class_, ldma_pool_waiter *waiter)
    int ldma_pool_cancel(ldma_pool *pool, ldma_pool_waiter *waiter)
    uint64_t ldma_pool_stride(const ldma_pool *pool)
    uint32_t ldma_pool_shard_of(const ldma_pool *pool, uint64_t handle)
    int ldma_pool_set_bounds(ldma_pool *pool, uint32_t minimum, uint32_t maximum)
    uint32_t ldma_pool_room(ldma_pool *pool)
    bint ldma_pool_is_short(ldma_pool *pool)
    int ldma_pool_add_shard(ldma_pool *pool, const ldma_pool_shard *shard, uint32_t *ret)
    int ldma_pool_retire_shard(ldma_pool *pool, uint32_t keep_idle, uint32_t *ret)
    bint ldma_pool_is_calling(const ldma_pool *pool)
    void ldma_pool_answer(ldma_pool *pool)
    void ldma_pool_get_stats(ldma_pool *pool, ldma_pool_stats *ret)
    struct ldma_pool_shard_use:
        uint64_t va
        uint32_t buffers
        uint32_t taken
    uint32_t ldma_pool_get_shards(ldma_pool *pool, ldma_pool_shard_use *ret, uint32_t most)
    void ldma_pool_get_waits(ldma_pool *pool, int class_, ldma_histogram *ret)


cdef class Pool:
    cdef ldma_pool *c  # valid as long as this object, even if the pool is closed
    cdef int call_fd
    cdef readonly uint32_t number
    cdef readonly uint32_t buffer_size
    cdef readonly uint32_t shard_buffers
    cdef readonly bint closed
    cdef dict shard_leases
    cdef dict anchored
    cdef object __weakref__

    cdef ldma_pool *live(self) except NULL


cdef ldma_pool_log *process_log() noexcept nogil
