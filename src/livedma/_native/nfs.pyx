# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the state that NFS has in C: slots and change attributes. Contracts are in nfs/slots.h and nfs/changes.h."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free
from libc.time cimport timespec

from livedma._native.nfs cimport *

cdef extern from "time.h" nogil:
    int CLOCK_MONOTONIC
    int clock_gettime(int clock, timespec *ret)

cdef extern from "nfs/compound.h" nogil:
    struct ldma_compound:
        int op
    bint ldma_compound_decode(ldma_compound *ret, const uint8_t *message, uint32_t length,
                              uint32_t read_position, uint64_t read_length)

SLOTS_MAX = LDMA_SLOTS_MAX
SMALL_REPLY = LDMA_SLOTS_SMALL
TIMES_BOUNDS_NS = tuple([LDMA_TIMES_BOUND_NS(i) for i in range(LDMA_TIMES_BOUNDS)])


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
    """Holds the slots of a session, and the replies of their last requests.

    It keeps every reply of up to SMALL_REPLY bytes, and one of up to `cache_bytes` if the client
    asks for that. Any thread may use it.
    """

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
        """Takes a SEQUENCE. Returns 0 if the caller is to execute the request, and then to call end or
        cancel; the kept reply if it was executed before; or the status that answers it.

        fingerprint: tells requests with the same sequence apart, if both have one.
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

    def end(
        self, uint32_t slot, bytes reply, uint64_t read_bytes=0, uint64_t written_bytes=0,
        uint64_t storage_ns=0,
    ):
        """Ends a request that was executed, moved so many bytes, and was in the store for so long. Returns
        whether its reply is kept; None never is."""
        cdef ldma_slots_took took
        self.check_executing(slot)
        took.now_ns, took.read_bytes, took.written_bytes = now_ns(), read_bytes, written_bytes
        took.storage_ns = storage_ns
        took.waited_ns = 0  # it needs no buffer: data passes through the process's own memory
        took.is_native = False
        if reply is None:
            return bool(ldma_slots_end(self.c, slot, &took, NULL, 0))
        return bool(
            ldma_slots_end(self.c, slot, &took, <const char *>reply, <uint32_t>len(reply))
        )

    def cancel(self, uint32_t slot):
        """Ends a request that was not executed: the slot is again as it was before."""
        self.check_executing(slot)
        ldma_slots_cancel(self.c, slot)

    @property
    def target(self):
        """The slots that the server wants. More are there at once, fewer once the client follows."""
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
        """Counts the slots."""
        ldma_take(&self.c.lock)
        cdef uint32_t size = self.c.size
        ldma_unlock(&self.c.lock)
        return size

    @property
    def highest(self):
        """Is the highest slot id, for SEQUENCE's result."""
        return self.size - 1

    @property
    def target_highest(self):
        """Is the highest slot id that is wanted, for SEQUENCE's result."""
        return self.target - 1

    @property
    def used_ns(self):
        """Is the time at which the last request began, by the monotonic clock; 0: none did."""
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

    def totals(self):
        """Returns two values. The first, since the session was made: (operations, bytes read, bytes
        written, ns waited for buffers, ns in the store, and of latency how many took less than each of
        TIMES_BOUNDS_NS, how many there were, ns together). The second: how many are executing."""
        cdef ldma_slots_account_t now
        cdef uint32_t executing
        ldma_take(&self.c.lock)
        now = self.c.account
        executing = self.c.executing
        ldma_unlock(&self.c.lock)
        ret = [now.operations, now.read_bytes, now.written_bytes, now.waited_ns, now.storage_ns]
        ret += flat(&now.latency)
        return tuple(ret), executing

    @property
    def status_flags(self):
        """The sr_status_flags of replies that do not pass Python."""
        return load_relaxed(&self.c.status_flags)

    @status_flags.setter
    def status_flags(self, uint32_t flags):
        store_relaxed(&self.c.status_flags, flags)

    @property
    def request_max(self):
        """The most bytes of a request, as CREATE_SESSION agreed; longer ones are left to Python."""
        return load_relaxed(&self.c.request_max)

    @request_max.setter
    def request_max(self, uint32_t most):
        store_relaxed(&self.c.request_max, most)

    @property
    def response_max(self):
        """The most bytes of a reply, as CREATE_SESSION agreed; requests for more are left to Python."""
        return load_relaxed(&self.c.response_max)

    @response_max.setter
    def response_max(self, uint32_t most):
        store_relaxed(&self.c.response_max, most)

    def bind(self, uint64_t connection):
        """Lets requests on the connection of this number be served without Python."""
        if not connection:
            raise ValueError("connections have numbers from 1")
        ldma_slots_bind(self.c, connection)

    def unbind(self, uint64_t connection):
        ldma_slots_unbind(self.c, connection)

    def is_bound(self, uint64_t connection):
        return bool(ldma_slots_is_bound(self.c, connection))

    @property
    def is_closed(self):
        ldma_take(&self.c.lock)
        cdef bint is_closed = self.c.is_closed
        ldma_unlock(&self.c.lock)
        return bool(is_closed)

    def close(self):
        """Lets no further request begin (BADSESSION); those that have begun may end."""
        ldma_slots_close(self.c)


@cython.final
cdef class SessionLook:
    """Compares a session's figures from one look to the next; the first interval begins with the
    session. Each reader keeps a look of its own."""

    cdef ldma_slots_account_t before
    cdef uint32_t executing

    def again(self, SlotTable table not None):
        """Returns three tuples. Now: (slots, slots wanted, executing). Since the last look: (the most
        executing at a time, operations, bytes read, bytes written, ns waited for buffers, ns in the
        store). How long operations took since then: (count, sum, half of them within, 99 of 100
        within, longest), in ns, or None if there were none."""
        cdef ldma_slots_account_t now
        cdef ldma_slots_account_t *before = &self.before
        cdef uint32_t size, target, executing, most
        ldma_take(&table.c.lock)
        now = table.c.account
        size, target, executing = table.c.size, table.c.target, table.c.executing
        most = table.c.peak
        ldma_unlock(&table.c.lock)
        most = min(most, ldma_slots_most(before, &now))
        ret = (
            (size, target, executing),
            (
                max(most, executing, self.executing),
                now.operations - before.operations,
                now.read_bytes - before.read_bytes,
                now.written_bytes - before.written_bytes,
                now.waited_ns - before.waited_ns,
                now.storage_ns - before.storage_ns,
            ),
            summary(&before.latency, &now.latency) if now.operations != before.operations else None,
        )
        self.before, self.executing = now, executing
        return ret


@cython.final
cdef class Changes:
    """Makes change attributes: ctime in nanoseconds, plus changes within the same tick of the clock.

    It remembers the files that were changed lately, in 160 KiB. Any thread may use it.
    """

    def __cinit__(self):
        self.c = <ldma_changes *>calloc(1, sizeof(ldma_changes))
        if not self.c:
            raise MemoryError

    def __dealloc__(self):
        free(self.c)

    def bump(self, uint64_t device, uint64_t inode, uint64_t ctime_ns):
        """Notes a change of the file, which has this ctime now; returns its change attribute."""
        return ldma_changes_bump(self.c, device, inode, ctime_ns)

    def value(self, uint64_t device, uint64_t inode, uint64_t ctime_ns):
        """Returns the change attribute of a file that has this ctime."""
        return ldma_changes_value(self.c, device, inode, ctime_ns)


@cython.final
cdef class WriteVerifier:
    """Holds the writeverf4 of WRITE and COMMIT, for all code that answers these. A new value tells clients
    to send again what they have not committed. Any thread may use it.
    """

    def __cinit__(self, bytes value not None):
        if len(value) != 8:
            raise ValueError("a write verifier has 8 bytes")
        self.c = get64(value)

    @property
    def value(self):
        cdef uint8_t value[8]
        put64(value, load64_relaxed(&self.c))
        return PyBytes_FromStringAndSize(<char *>value, 8)

    def renew(self):
        """Changes the value, since data that was written may be lost."""
        increase_relaxed(&self.c)


def fast_operation(bytes message not None, uint32_t read_position=0, uint64_t read_length=0):
    """Returns the operation that a call with this message and read chunk asks for, if it has the
    shape of the calls that need no Python; else 0."""
    cdef ldma_compound compound
    if not ldma_compound_decode(&compound, message, <uint32_t>len(message), read_position, read_length):
        return 0
    return compound.op
