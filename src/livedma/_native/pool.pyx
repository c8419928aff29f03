# SPDX-License-Identifier: BSD-2-Clause
"""Pools of buffers, without the source of their memory. Contracts are in memory/pool.h."""
import os

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EALREADY, EINPROGRESS, EINVAL, ESHUTDOWN
from libc.stdint cimport UINT64_MAX, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from livedma._native.histogram cimport ldma_histogram, shown
from livedma._native.pool cimport *

cdef extern from "unistd.h" nogil:
    int close(int fd)

cdef extern from "pool_sleeper.h" nogil:
    struct pool_inbox:
        int fd
    struct pool_sleeper:
        ldma_pool_waiter waiter
        pool_sleeper *next
    void pool_sleeper_init(pool_sleeper *sleeper, pool_inbox *inbox)
    void pool_sleeper_destroy(pool_sleeper *sleeper)
    bint pool_sleeper_wait(pool_sleeper *sleeper, uint64_t timeout_ns)
    pool_sleeper *pool_inbox_take(pool_inbox *inbox)
    void pool_raise(int fd)
    uint64_t pool_now_ns()
    ldma_pool_log pool_log

ALIGNMENT = LDMA_POOL_ALIGN
SHARD_BUFFERS_MAX = LDMA_POOL_SHARD_BUFFERS_MAX
BUFFERS_MAX = LDMA_POOL_BUFFERS_MAX

cdef uint64_t SIGNAL_NS = 50_000_000  # the interval at which a thread that waits checks for signals
cdef uint32_t pools = 0


class PoolClosed(ValueError):
    """Reports that the pool was closed, before the call or while it waited."""

    def __init__(self):
        super().__init__("the pool is closed")


cdef ldma_pool_log *process_log() noexcept nogil:
    return &pool_log


cdef int check(int result) except -1:
    if result == -ESHUTDOWN:
        raise PoolClosed
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


cdef void call_owner(void *fd) noexcept nogil:
    pool_raise((<int *>fd)[0])


@cython.final
@cython.freelist(64)
@cython.nonecheck(True)
cdef class Buffer:
    """Represents a taken buffer. One that is dropped without release() stays taken: the device may still use it."""

    cdef readonly Pool pool
    cdef readonly uint64_t handle
    cdef readonly uint64_t va
    cdef readonly uint32_t lkey
    cdef readonly uint32_t rkey
    cdef uint8_t *c
    cdef object anchor  # keeps the lease's memory while a view is on the buffer's
    cdef object view
    cdef Py_ssize_t exports

    def __init__(self):
        raise TypeError("buffers come from a pool")

    @property
    def address(self):
        return <uintptr_t>self.c

    @property
    def length(self):
        return self.pool.buffer_size

    def __len__(self):
        return self.pool.buffer_size

    @property
    def released(self):
        return not self.handle or self.pool.closed

    @property
    def memory(self):
        """Shows its bytes, until it is released."""
        if self.view is None:
            self.view = memoryview(self)
        return self.view

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if not self.handle or self.pool.closed:
            raise BufferError("the buffer was released")
        if self.anchor is None:
            self.anchor = anchor_of(self)
        PyBuffer_FillInfo(buffer, self, self.c, self.pool.buffer_size, 0, flags)
        self.exports += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.exports -= 1
        if not self.exports and self.pool.closed:
            self.anchor = None

    cdef bint leave_memory(self) except -1:
        """Releases the buffer's own view. Returns whether no other view is on its memory."""
        if self.view is not None:
            self.view.release()
            self.view = None
        if self.exports:
            return False
        self.anchor = None
        self.pool.anchored.pop(self.handle, None)
        return True

    def release(self):
        """Gives the buffer back; it is called once. It does nothing if the pool is closed.

        BufferError while a view is on its memory: it stays taken.
        """
        cdef int result
        if self.anchor is not None and not self.leave_memory():
            raise BufferError("something is on the buffer's memory")
        result = ldma_pool_return(self.pool.c, self.handle)
        self.handle = 0
        if result and not self.pool.closed:
            raise ValueError("the buffer was released already")
        if ldma_pool_is_calling(self.pool.c) and self.pool.call_fd < 0 and not self.pool.closed:
            self.pool.tend()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.handle:
            self.release()


cdef class Pool:
    """Wraps the pool of memory/pool.h. Its owner, a subclass, brings leases of memory and takes them back."""

    def __cinit__(self, *_, **__):
        self.call_fd = -1
        self.shard_leases, self.anchored = {}, {}

    def __init__(self, uint32_t buffer_size, uint32_t shard_buffers, uint32_t reserve=0,
                 uint32_t minimum=0, uint32_t maximum=0):
        global pools
        cdef ldma_pool_config config
        if self.c != NULL:
            raise ValueError("the pool is open already")
        memset(&config, 0, sizeof(config))
        config.number, config.buffer_bytes, config.shard_buffers = pools, buffer_size, shard_buffers
        config.reserve, config.minimum, config.maximum = reserve, minimum, maximum
        config.now_ns, config.log = pool_now_ns, &pool_log
        config.call_owner, config.owner = call_owner, &self.call_fd
        check(ldma_pool_create(&config, &self.c))
        self.number, self.buffer_size, self.shard_buffers = pools, buffer_size, shard_buffers
        pools += 1

    def __dealloc__(self):
        ldma_pool_destroy(self.c)
        if self.call_fd >= 0:
            close(self.call_fd)

    cdef ldma_pool *live(self) except NULL:
        if self.c == NULL:
            raise PoolClosed
        return self.c

    def take_free(self, bint control=False):
        """Takes a buffer if one is free for this class, else returns None."""
        cdef ldma_pool_buffer taken
        cdef int result = ldma_pool_take(self.live(), control, &taken)
        if result == -EAGAIN:
            return None
        check(result)
        return wrap(self, &taken)

    @property
    def stride(self):
        """Counts the bytes from one buffer to the next."""
        return ldma_pool_stride(self.live())

    def room(self):
        """Returns how many buffers the next shard may have; 0: the pool may not grow."""
        return ldma_pool_room(self.live())

    def is_short(self):
        """Returns whether it has less than its minimum and reserve."""
        return ldma_pool_is_short(self.live())

    def set_bounds(self, uint32_t minimum, uint32_t maximum=0):
        """Changes the bounds from now on; the owner adds and retires shards."""
        if ldma_pool_set_bounds(self.live(), minimum, maximum):
            raise ValueError("maximum is at least minimum and reserve")

    def add_shard(self, lease, uint32_t buffers):
        """Takes over a lease of memory as a shard. Waiters get its buffers first."""
        cdef ldma_pool_shard shard
        cdef uint32_t number
        cdef int result
        if lease.length < buffers * ldma_pool_stride(self.live()):
            raise ValueError(f"{lease.length} bytes are too few for {buffers} buffers")
        shard.memory, shard.va = <uint8_t *><uintptr_t>lease.address, lease.va
        shard.lkey, shard.rkey, shard.buffers = lease.lkey, lease.rkey, buffers
        result = ldma_pool_add_shard(self.c, &shard, &number)
        if result == -EINVAL:
            raise ValueError(f"a shard's memory starts at a multiple of {LDMA_POOL_ALIGN} bytes")
        check(result)
        self.shard_leases[number] = lease

    def retire_shard(self, uint32_t keep_idle):
        """Returns the lease of an idle shard, if more than keep_idle may go; else None."""
        cdef uint32_t number
        if ldma_pool_retire_shard(self.live(), keep_idle, &number) == -EAGAIN:
            return None
        return self.shard_leases.pop(number)

    def shut(self):
        """Ends all waiting and taking. Returns the leases, which are the owner's again."""
        if self.c == NULL or self.closed:
            return []
        self.closed = True
        ldma_pool_close(self.c)
        for buffer in list(self.anchored.values()):
            (<Buffer>buffer).leave_memory()  # if a view is left, the lease cannot go yet, and says so
        self.anchored.clear()
        leases = list(self.shard_leases.values())
        self.shard_leases.clear()
        return leases

    @property
    def leases(self):
        """Lists the leases of its shards."""
        return self.shard_leases.values()

    def tend(self):
        """Serves the pool when it calls for its owner; a subclass defines it."""
        raise NotImplementedError

    def answer(self):
        """Says that the owner came: from now on it may be called again."""
        ldma_pool_answer(self.live())

    def listen_for_calls(self):
        """Returns a descriptor that becomes readable from now on; tend() is not called."""
        if self.call_fd < 0:
            self.call_fd = os.eventfd(0, os.EFD_CLOEXEC)
        return self.call_fd

    def counts(self):
        """Returns the figures of struct ldma_pool_stats; by class, a pair: data first."""
        cdef ldma_pool_stats s
        ldma_pool_get_stats(self.live(), &s)
        return {
            "shards": s.shards, "idle_shards": s.idle_shards, "buffers": s.buffers, "free": s.free,
            "returns": s.returns, "refused": s.refused,
            "shards_added": s.shards_added, "shards_removed": s.shards_removed,
            "taken": (s.taken[0], s.taken[1]), "waiting": (s.waiting[0], s.waiting[1]),
            "oldest_ns": (s.oldest_ns[0], s.oldest_ns[1]),
            "takes": (s.takes[0], s.takes[1]), "gave_up": (s.gave_up[0], s.gave_up[1]),
        }

    def shards(self):
        """Returns (va, buffers, taken) of each shard, in the order of their addresses."""
        cdef uint32_t most = ldma_pool_get_shards(self.live(), NULL, 0) + 4  # some may be added
        cdef ldma_pool_shard_use *uses = <ldma_pool_shard_use *>malloc(most * sizeof(uses[0]))
        if uses == NULL:
            raise MemoryError
        try:
            count = min(ldma_pool_get_shards(self.c, uses, most), most)
            return sorted((uses[i].va, uses[i].buffers, uses[i].taken) for i in range(count))
        finally:
            free(uses)

    def waits(self, bint control):
        """Returns how long waiters waited: (count, sum, longest, [(least of a bucket, how many)]), all in ns."""
        cdef ldma_histogram h
        ldma_pool_get_waits(self.live(), control, &h)
        return shown(&h)


cdef object anchor_of(Buffer buffer):
    """Returns a view of the lease's memory where the buffer is."""
    cdef Pool pool = buffer.pool
    lease = pool.shard_leases[ldma_pool_shard_of(pool.c, buffer.handle)]
    offset = buffer.address - lease.address
    pool.anchored[buffer.handle] = buffer
    return lease.memory[offset:offset + pool.buffer_size]


cdef Buffer wrap(Pool pool, const ldma_pool_buffer *taken):
    cdef Buffer buffer = Buffer.__new__(Buffer)
    buffer.pool, buffer.handle, buffer.c, buffer.va = pool, taken.handle, taken.memory, taken.va
    buffer.lkey, buffer.rkey = taken.lkey, taken.rkey
    return buffer


cdef class Inbox:
    """Collects the waiters of an event loop's tasks whose waiting has ended. Its descriptor is readable when there are
    some."""

    cdef pool_inbox c
    cdef dict waiters  # by address: keeps their memory until read() takes them

    def __cinit__(self):
        self.c.fd = -1
        self.waiters = {}
        self.c.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __dealloc__(self):
        if self.c.fd >= 0:
            close(self.c.fd)

    def fileno(self):
        return self.c.fd

    def __len__(self):
        """Returns how many wait, or were not read yet."""
        return len(self.waiters)

    def read(self):
        """Takes the tokens of those whose waiting has ended, in that order."""
        cdef pool_sleeper *sleeper
        cdef pool_sleeper *next_one
        cdef Waiter waiter
        cdef list tokens = []
        try:
            os.eventfd_read(self.c.fd)
        except BlockingIOError:
            pass
        sleeper = pool_inbox_take(&self.c)
        while sleeper != NULL:
            next_one = sleeper.next
            waiter = self.waiters.pop(<uintptr_t>sleeper)
            waiter.finish()
            tokens.append(waiter.token)
            sleeper = next_one
        return tokens


@cython.no_gc_clear  # it may be queued until it is freed, and needs its pool to leave the queue
cdef class Waiter:
    """Holds a place in a pool's queue for a buffer. A thread waits with wait(), or an inbox gets the token."""

    cdef pool_sleeper c
    cdef Pool pool
    cdef Inbox inbox
    cdef readonly object token
    cdef bint is_waiting

    def __cinit__(self, Pool pool not None, bint control=False, Inbox inbox=None, token=None):
        cdef int result
        self.pool, self.inbox, self.token = pool, inbox, token
        pool_sleeper_init(&self.c, &inbox.c if inbox is not None else NULL)
        result = ldma_pool_wait(pool.live(), control, &self.c.waiter)
        self.is_waiting = result == -EINPROGRESS
        if self.is_waiting and inbox is not None:
            inbox.waiters[<uintptr_t>&self.c] = self

    def __dealloc__(self):
        self.stop()
        pool_sleeper_destroy(&self.c)

    @property
    def is_over(self):
        return not self.is_waiting

    cdef void finish(self) noexcept:
        """Waits for the thread that completes it, which has done so or is about to: that takes no lock and no GIL."""
        if self.is_waiting:
            pool_sleeper_wait(&self.c, UINT64_MAX)
            self.is_waiting = False

    def wait(self, double seconds):
        """Waits up to so many seconds, and returns whether the waiting is over. A signal's handler may run meanwhile,
        and raise."""
        cdef uint64_t left_ns = <uint64_t>(max(seconds, 0) * 1e9), slice_ns
        while self.is_waiting:
            slice_ns = min(left_ns, SIGNAL_NS)
            with nogil:
                is_over = pool_sleeper_wait(&self.c, slice_ns)
            self.is_waiting = not is_over
            PyErr_CheckSignals()
            left_ns -= slice_ns
            if not left_ns:
                break
        return not self.is_waiting

    cpdef Buffer claim(self):
        """Returns the buffer, or None: then it waits no more."""
        cdef Buffer buffer = None
        if self.is_waiting:
            if ldma_pool_cancel(self.pool.c, &self.c.waiter) == -EALREADY:
                self.finish()
            else:
                self.is_waiting = False
                if self.inbox is not None:
                    self.inbox.waiters.pop(<uintptr_t>&self.c)
        if self.c.waiter.result == -ESHUTDOWN:
            raise PoolClosed
        if not self.c.waiter.result and self.c.waiter.buffer.handle:
            buffer = wrap(self.pool, &self.c.waiter.buffer)
            self.c.waiter.buffer.handle = 0
        return buffer

    cdef void stop(self) noexcept:
        if self.is_waiting:
            if ldma_pool_cancel(self.pool.c, &self.c.waiter) == -EALREADY:
                self.finish()
            self.is_waiting = False
        if not self.c.waiter.result and self.c.waiter.buffer.handle:
            ldma_pool_return(self.pool.c, self.c.waiter.buffer.handle)
            self.c.waiter.buffer.handle = 0
