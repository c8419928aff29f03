# SPDX-License-Identifier: BSD-2-Clause
# Listeners to memory, as the bindings see them. Contracts are in memory/hooks.h and memory/hook_queue.h.
from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    #include "memory/hooks.h"
    static const char *const ldma_hook_names[] = {
    #define MEMORY_HOOK(name) #name,
    #include "memory/hooks.def"
    };
    static const char *const ldma_cause_names[] = {
    #define MEMORY_CAUSE(name) #name,
    #include "memory/hooks.def"
    };
    #define LDMA_HOOK_COUNT (sizeof(ldma_hook_names) / sizeof(ldma_hook_names[0]))
    #define LDMA_CAUSE_COUNT (sizeof(ldma_cause_names) / sizeof(ldma_cause_names[0]))
    """
    const char *const *ldma_hook_names
    const char *const *ldma_cause_names
    size_t LDMA_HOOK_COUNT, LDMA_CAUSE_COUNT

cdef extern from "memory/hooks.h" nogil:
    struct ldma_memory_event:
        uint64_t number
        uint64_t start
        uint64_t end
        uint64_t to
        uint64_t lost
        uint32_t hook
        uint32_t cause
        uint32_t protection
    struct ldma_hooks:
        pass
    struct ldma_listener:
        pass
    int ldma_memory_listen(void *memory, uint64_t length, uint64_t period_ns,
                           const ldma_hooks *hooks, void *arg, ldma_listener **ret)
    void ldma_memory_unlisten(ldma_listener *listener)
    void ldma_memory_look()
    void ldma_memory_exit()

cdef extern from "memory/hook_queue.h" nogil:
    struct ldma_hook_queue:
        pass
    struct ldma_queue_end:
        pass
    struct ldma_queued:
        uint64_t tag
        ldma_memory_event event
    const ldma_hooks ldma_queue_hooks
    int ldma_hook_queue_create(uint32_t capacity, ldma_hook_queue **ret)
    void ldma_hook_queue_destroy(ldma_hook_queue *queue)
    void ldma_hook_queue_attach(ldma_hook_queue *queue, ldma_queue_end *end, uint64_t tag,
                                const void *memory, uint64_t length)
    void ldma_hook_queue_detach(ldma_queue_end *end)
    uint32_t ldma_hook_queue_take(ldma_hook_queue *queue, ldma_queued *ret, uint32_t count)
    void ldma_hook_queue_wait(ldma_hook_queue *queue)
    uint64_t ldma_queue_end_lost(ldma_queue_end *end)
