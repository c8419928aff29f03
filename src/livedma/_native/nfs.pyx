"""What NFS does in C: slots, and calls that need no Python. Contracts are in storage/*.h."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.time cimport timespec

cdef extern from "time.h" nogil:
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *ret)

cdef extern from "lock.h" nogil:
    struct ldma_lock:
        pass
    void ldma_take "ldma_lock"(ldma_lock *lock)
    void ldma_unlock(ldma_lock *lock)

cdef extern from "slots.h" nogil:
    int LDMA_SLOTS_MAX, LDMA_SLOTS_SMALL, LDMA_SESSION_ID_BYTES
    struct ldma_slots_counters:
        uint64_t executed, replayed, delayed, uncached, false_retries, misordered, bad_slots
        uint64_t retired, reply_bytes, reads, read_bytes, writes, written_bytes, commits
    struct ldma_slots:
        uint8_t *session_id
        uint64_t client
        uint32_t cache_bytes
        ldma_lock lock
        uint32_t size, target
        bint is_closed
        uint64_t used_ns
        ldma_slots_counters counters
    struct ldma_sequence:
        uint32_t slot, sequence, highest
        bint cache_this
        uint64_t fingerprint
    ldma_slots *ldma_slots_create(const uint8_t *session_id, uint64_t client, uint32_t slots,
                                  uint32_t cache_bytes)
    void ldma_slots_put(ldma_slots *slots)
    int ldma_slots_begin(ldma_slots *slots, const ldma_sequence *asked, uint64_t now_ns,
                         uint8_t **replay, uint32_t *length)
    bint ldma_slots_end(ldma_slots *slots, uint32_t slot, const void *reply, uint32_t length)
    void ldma_slots_cancel(ldma_slots *slots, uint32_t slot)
    bint ldma_slots_is_executing(ldma_slots *slots, uint32_t slot)
    void ldma_slots_set_target(ldma_slots *slots, uint32_t target)
    void ldma_slots_close(ldma_slots *slots)

SLOTS_MAX = LDMA_SLOTS_MAX
SMALL_REPLY = LDMA_SLOTS_SMALL


cdef uint64_t now_ns() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1_000_000_000 + <uint64_t>t.tv_nsec


cdef int check_slots(uint32_t slots) except -1:
    if not 1 <= slots <= LDMA_SLOTS_MAX:
        raise ValueError(f"a session has 1 to {LDMA_SLOTS_MAX} slots, not {slots}")
    return 0


@cython.final
cdef class SlotTable:
    """The slots of a session, and the replies of their last requests.

    Replies up to SMALL_REPLY bytes are kept though nobody asks for it, others of up to
    `cache_bytes` if the client does. Any thread may use it.
    """

    cdef ldma_slots *c

    def __cinit__(self, bytes session_id not None, uint64_t client, uint32_t slots,
                  uint32_t cache_bytes):
        if len(session_id) != LDMA_SESSION_ID_BYTES:
            raise ValueError("a session id has 16 bytes")
        check_slots(slots)
        self.c = ldma_slots_create(session_id, client, slots, cache_bytes)
        if not self.c:
            raise MemoryError

    def __dealloc__(self):
        if self.c:
            ldma_slots_put(self.c)

    @property
    def session_id(self):
        return PyBytes_FromStringAndSize(<char *>self.c.session_id, LDMA_SESSION_ID_BYTES)

    @property
    def client(self):
        return self.c.client

    @property
    def cache_bytes(self):
        return self.c.cache_bytes

    def begin(self, uint32_t slot, uint32_t sequence, uint32_t highest, bint cache_this,
              uint64_t fingerprint=0):
        """A SEQUENCE: 0 if its request is to be executed, and then ended or cancelled; its reply if it
        was executed before; or the status that answers it.

        fingerprint: tells requests apart that have the same sequence, as far as both have one.
        """
        cdef ldma_sequence asked
        cdef uint8_t *replay
        cdef uint32_t length
        asked.slot = slot
        asked.sequence = sequence
        asked.highest = highest
        asked.cache_this = cache_this
        asked.fingerprint = fingerprint
        cdef int status = ldma_slots_begin(self.c, &asked, now_ns(), &replay, &length)
        if not replay:
            return status
        try:
            return PyBytes_FromStringAndSize(<char *>replay, length)
        finally:
            free(replay)

    cdef int check_executing(self, uint32_t slot) except -1:
        if not ldma_slots_is_executing(self.c, slot):
            raise ValueError(f"slot {slot} is not executing")
        return 0

    def end(self, uint32_t slot, bytes reply):
        """The request was executed. Whether its reply is kept; None never is."""
        self.check_executing(slot)
        if reply is None:
            return bool(ldma_slots_end(self.c, slot, NULL, 0))
        return bool(ldma_slots_end(self.c, slot, <const char *>reply, <uint32_t>len(reply)))

    def cancel(self, uint32_t slot):
        """The request was not executed: the slot is as it was before."""
        self.check_executing(slot)
        ldma_slots_cancel(self.c, slot)

    @property
    def target(self):
        """How many slots are wanted. More are there at once, fewer once the client follows."""
        ldma_take(&self.c.lock)
        cdef uint32_t target = self.c.target
        ldma_unlock(&self.c.lock)
        return target

    @target.setter
    def target(self, uint32_t slots):
        check_slots(slots)
        ldma_slots_set_target(self.c, slots)

    @property
    def size(self):
        """How many slots there are."""
        ldma_take(&self.c.lock)
        cdef uint32_t size = self.c.size
        ldma_unlock(&self.c.lock)
        return size

    @property
    def highest(self):
        """The highest slot id, for SEQUENCE's result."""
        return self.size - 1

    @property
    def target_highest(self):
        """The highest slot id that is wanted, for SEQUENCE's result."""
        return self.target - 1

    @property
    def used_ns(self):
        """When a request began last (monotonic); 0: never."""
        ldma_take(&self.c.lock)
        cdef uint64_t used_ns = self.c.used_ns
        ldma_unlock(&self.c.lock)
        return used_ns

    @property
    def counters(self):
        ldma_take(&self.c.lock)
        cdef ldma_slots_counters counters = self.c.counters
        ldma_unlock(&self.c.lock)
        return counters

    @property
    def is_closed(self):
        ldma_take(&self.c.lock)
        cdef bint is_closed = self.c.is_closed
        ldma_unlock(&self.c.lock)
        return bool(is_closed)

    def close(self):
        """No request begins any more (BADSESSION); those that have begun may end."""
        ldma_slots_close(self.c)
