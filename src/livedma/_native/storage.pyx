# SPDX-License-Identifier: BSD-2-Clause
"""Runs the server's side of RPC-over-RDMA: a device's service, its endpoints, and the calls that Python answers.

Contracts are in rpc/endpoint.h and rpc/server.h.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from livedma._native.pool cimport Pool, ldma_pool
from livedma._native.port cimport Port, ldma_port
from livedma._native.rdma cimport CompletionQueue, QueuePair, check, ldma_cq, ldma_qp
from livedma._native.times cimport *

cdef extern from *:
    """
    #include "rpc/server.h"
    enum ldma_endpoint_kind {LDMA_LEVEL, LDMA_HELD, LDMA_COUNT, LDMA_TIMES, LDMA_ERROR};
    static const struct { const char *name; size_t offset; enum ldma_endpoint_kind kind; } ldma_endpoint_fields[] = {
    #define FIELD(name, kind) {#name, offsetof(struct ldma_endpoint_stats, name), kind},
    #define LEVEL(name) FIELD(name, LDMA_LEVEL)
    #define HELD(name) FIELD(name, LDMA_HELD)
    #define COUNT(name) FIELD(name, LDMA_COUNT)
    #define TIMES(name) FIELD(name, LDMA_TIMES)
    #define ERROR(name) {#name, offsetof(struct ldma_endpoint_stats, errors.name), LDMA_ERROR},
    LDMA_ENDPOINT_STATS(LEVEL, HELD, COUNT, TIMES)
    LDMA_ENDPOINT_ERRORS(ERROR)
    #undef ERROR
    #undef TIMES
    #undef COUNT
    #undef HELD
    #undef LEVEL
    #undef FIELD
    };
    #define LDMA_ENDPOINT_FIELD_COUNT \\
        (sizeof(ldma_endpoint_fields) / sizeof(ldma_endpoint_fields[0]))
    """
    int LDMA_LEVEL, LDMA_HELD, LDMA_COUNT, LDMA_TIMES
    struct endpoint_field:
        const char *name
        size_t offset
        int kind
    const endpoint_field *ldma_endpoint_fields
    size_t LDMA_ENDPOINT_FIELD_COUNT

cdef extern from "rpc/rpcrdma.h" nogil:
    struct ldma_rpcrdma_limits:
        uint32_t chunks
        uint32_t segments
        uint64_t list_bytes

cdef extern from "rpc/endpoint.h" nogil:
    enum: LDMA_ENDPOINT_SPARE_RECEIVES
    struct ldma_program:
        pass
    struct ldma_endpoint:
        pass
    struct ldma_call:
        ldma_endpoint *endpoint
        uint32_t xid
        uint64_t received_ns
        bint has_write
        uint64_t write_room
        uint32_t reply_room
        uint64_t waited_ns
    struct ldma_endpoint_config:
        ldma_qp *qp
        ldma_pool *receive_pool
        ldma_pool *data_pool
        uint32_t receive_bytes
        uint32_t data_bytes
        uint64_t number
        uint32_t credits
        uint32_t credits_max
        uint32_t send_inline
        uint32_t completions
        bint may_invalidate
        uint64_t message_bytes
        uint64_t gathered_bytes
        uint64_t stall_ns
        ldma_rpcrdma_limits limits
    struct ldma_endpoint_stats:
        uint32_t credits
        uint64_t calls
        uint64_t dropped_calls
        uint64_t receives_late
        uint64_t read_bytes
        uint64_t written_bytes
        ldma_times latency
    void ldma_endpoint_start(ldma_endpoint *endpoint)
    void ldma_endpoint_close(ldma_endpoint *endpoint)
    void ldma_endpoint_drain(ldma_endpoint *endpoint)
    uint64_t ldma_endpoint_replied_ns(ldma_endpoint *endpoint)
    void ldma_endpoint_put(ldma_endpoint *endpoint)
    void ldma_endpoint_set_credits(ldma_endpoint *endpoint, uint32_t credits)
    void ldma_endpoint_moved(ldma_endpoint *endpoint, uint64_t read_bytes, uint64_t written_bytes)
    bint ldma_endpoint_is_open(ldma_endpoint *endpoint)
    void ldma_endpoint_get_stats(ldma_endpoint *endpoint, ldma_endpoint_stats *ret)
    const uint8_t *ldma_call_message(const ldma_call *call, uint64_t *ret_length)
    void ldma_call_answer(ldma_call *call, const void *message, uint64_t length, const void *data,
                          uint64_t data_length, uint64_t data_offset)
    void ldma_call_drop(ldma_call *call)

cdef extern from "rpc/server.h" nogil:
    struct ldma_service:
        pass
    struct ldma_service_config:
        ldma_port *port
        ldma_cq *cq
        uint32_t completions
        uint64_t spin_ns
        bint has_reserve
    struct ldma_service_stats_t "ldma_service_stats":
        uint64_t wakes
        uint64_t batches
        uint64_t completions
        uint64_t locks
        uint64_t busy_ns
    int ldma_endpoint_create(ldma_service *service, const ldma_endpoint_config *config,
                             ldma_endpoint **ret)
    int ldma_service_create(const ldma_service_config *config, ldma_service **ret)
    void ldma_service_stop(ldma_service *service)
    void ldma_service_destroy(ldma_service *service)
    void ldma_service_set_program(ldma_service *service, ldma_program *program)
    ldma_call *ldma_service_next_call(ldma_service *service, uint64_t timeout_ns, bint only_control)
    ldma_endpoint *ldma_service_next_ended(ldma_service *service, uint64_t timeout_ns)
    bint ldma_service_is_stopped(ldma_service *service)
    ldma_service_stats_t ldma_service_stats(ldma_service *service)


SPARE_RECEIVES = LDMA_ENDPOINT_SPARE_RECEIVES


cdef uint64_t nanoseconds(timeout) except? 0xffffffffffffffff:
    return UINT64_MAX if timeout is None else <uint64_t>(max(timeout, 0) * 1e9)


cdef tuple histogram(const ldma_times *times):
    """Returns (count, sum, longest, [(least of a bucket, how many)]), all in ns."""
    buckets = [(ldma_times_least_ns(i), times.buckets[i])
               for i in range(LDMA_TIMES_BUCKETS) if times.buckets[i]]
    return times.count, times.sum_ns, times.max_ns, buckets


_FIELD_NAMES = [ldma_endpoint_fields[i].name.decode() for i in range(LDMA_ENDPOINT_FIELD_COUNT)]


cdef dict shown(const ldma_endpoint_stats *now, const ldma_endpoint_stats *before):
    """Returns what an endpoint counted since `before`, with times as summary() gives them. If `before` is NULL it
    returns all so far, with times as histogram() gives them."""
    cdef list names = _FIELD_NAMES
    cdef dict ret = {}, errors = {}
    cdef const char *here
    cdef const char *there
    cdef uint64_t base
    cdef size_t i
    cdef int kind
    for i in range(LDMA_ENDPOINT_FIELD_COUNT):
        kind = ldma_endpoint_fields[i].kind
        here = <const char *>now + ldma_endpoint_fields[i].offset
        there = NULL if before == NULL else <const char *>before + ldma_endpoint_fields[i].offset
        if kind == LDMA_LEVEL:
            ret[names[i]] = (<const uint32_t *>here)[0]
        elif kind == LDMA_HELD:
            ret[names[i]] = (<const uint64_t *>here)[0]
        elif kind == LDMA_TIMES:
            ret[names[i]] = (histogram(<const ldma_times *>here) if there == NULL
                             else summary(<const ldma_times *>there, <const ldma_times *>here))
        else:
            base = 0 if there == NULL else (<const uint64_t *>there)[0]
            (ret if kind == LDMA_COUNT else errors)[names[i]] = (<const uint64_t *>here)[0] - base
    ret["errors"] = errors
    return ret


@cython.no_gc_clear  # what it holds must outlive it
cdef class Service:
    """Runs the thread that serves all endpoints of a device, until stop()."""

    cdef ldma_service *c
    cdef Port port
    cdef CompletionQueue cq
    cdef dict endpoints
    cdef object program
    cdef bint is_running

    def __init__(self, Port port not None, CompletionQueue cq not None, uint32_t completions,
                 spin=0.0, bint has_reserve=False):
        """Starts the thread. cq: the queue of all queue pairs whose endpoints it serves; it holds `completions`.
        has_reserve: a thread that calls next_call(only_control=True) gets control traffic past all other calls."""
        cdef ldma_service_config config
        if self.c != NULL:
            raise ValueError("the service is there already")
        if port.closed:
            raise ValueError("the device is closed")
        self.port, self.cq, self.endpoints = port, cq, {}
        config.port, config.cq, config.completions = port.port, cq.live(), completions
        config.spin_ns = nanoseconds(spin)
        config.has_reserve = has_reserve
        check(ldma_service_create(&config, &self.c))
        self.is_running = True
        port.users += 1

    def __dealloc__(self):
        if self.c != NULL and not self.endpoints:
            self.end()
            ldma_service_destroy(self.c)

    cdef int end(self) except -1:
        if self.is_running:
            with nogil:
                ldma_service_stop(self.c)
            self.is_running = False
            self.port.users -= 1
        return 0

    cdef ldma_service *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the service is not there yet")
        return self.c

    def stop(self):
        """Ends the thread. Every endpoint has to have ended, and next_ended() has to have taken it."""
        self.live()
        if self.endpoints:
            raise ValueError("endpoints are not over yet")
        self.end()

    @property
    def is_stopped(self):
        return bool(ldma_service_is_stopped(self.live()))

    def set_program(self, capsule):
        """Sets the program that gets calls before Python: a capsule "ldma_program", or None."""
        cdef ldma_program *program = NULL
        if capsule is not None:
            program = <ldma_program *>PyCapsule_GetPointer(capsule, "ldma_program")
        ldma_service_set_program(self.live(), program)
        self.program = capsule

    def next_call(self, timeout=None, *, bint only_control=False):
        """Returns a call that Python has to answer; None after timeout seconds, or when the service has stopped.
        only_control: the thread serves no other calls than control traffic."""
        cdef ldma_service *c = self.live()
        cdef uint64_t timeout_ns = nanoseconds(timeout)
        cdef ldma_call *call
        with nogil:
            call = ldma_service_next_call(c, timeout_ns, only_control)
        PyErr_CheckSignals()
        return None if call == NULL else wrap(self, call)

    def next_ended(self, timeout=None):
        """Returns an endpoint that has ended, each once; None as next_call()."""
        cdef ldma_service *c = self.live()
        cdef uint64_t timeout_ns = nanoseconds(timeout)
        cdef ldma_endpoint *endpoint
        with nogil:
            endpoint = ldma_service_next_ended(c, timeout_ns)
        PyErr_CheckSignals()
        return None if endpoint == NULL else self.endpoints.pop(<uintptr_t>endpoint)

    @property
    def counters(self):
        cdef ldma_service_stats_t stats = ldma_service_stats(self.live())
        return {"wakes": stats.wakes, "batches": stats.batches, "completions": stats.completions,
                "locks": stats.locks, "busy_ns": stats.busy_ns}


@cython.no_gc_clear
cdef class Endpoint:
    """Serves a connection. Its queue pair and its pools have to stay until next_ended() returns it."""

    cdef ldma_endpoint *c
    cdef readonly Service service
    cdef readonly QueuePair qp
    cdef readonly Pool receive_pool
    cdef readonly Pool data_pool
    cdef readonly uint64_t number
    cdef public object owner

    def __init__(self, Service service not None, QueuePair qp not None, Pool receive_pool not None,
                 Pool data_pool not None, *, uint64_t number, uint32_t credits, uint32_t credits_max,
                 uint32_t completions, uint32_t send_inline, bint may_invalidate=False,
                 uint64_t message_bytes=1 << 20, uint64_t gathered_bytes=16 << 20,
                 stall=60.0, uint32_t chunks=16, uint32_t segments=256,
                 uint64_t list_bytes=16 << 20, owner=None):
        cdef ldma_endpoint_config config
        if self.c != NULL:
            raise ValueError("the endpoint is there already")
        memset(&config, 0, sizeof(config))
        config.qp, config.number = qp.live(), number
        config.receive_pool, config.data_pool = receive_pool.live(), data_pool.live()
        config.receive_bytes, config.data_bytes = receive_pool.buffer_size, data_pool.buffer_size
        config.credits, config.credits_max = credits, credits_max
        config.completions, config.send_inline = completions, send_inline
        config.may_invalidate = may_invalidate
        config.message_bytes, config.gathered_bytes = message_bytes, gathered_bytes
        config.stall_ns = nanoseconds(stall) if stall else 0
        config.limits.chunks, config.limits.segments = chunks, segments
        config.limits.list_bytes = list_bytes
        self.service, self.qp, self.number, self.owner = service, qp, number, owner
        self.receive_pool, self.data_pool = receive_pool, data_pool
        check(ldma_endpoint_create(service.live(), &config, &self.c))
        service.endpoints[<uintptr_t>self.c] = self

    def __dealloc__(self):
        ldma_endpoint_put(self.c)

    cdef ldma_endpoint *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the endpoint is not there yet")
        return self.c

    def start(self):
        """Says that the queue pair is ready to send: replies that wait for that go out."""
        cdef ldma_endpoint *c = self.live()
        self.service.port.users += 1  # a device that closes waits for this thread
        with nogil:
            ldma_endpoint_start(c)
        self.service.port.users -= 1

    def close(self):
        """Ends the connection; calls under way get errors. Calling it a second time has no effect."""
        cdef ldma_endpoint *c = self.live()
        self.service.port.users += 1
        with nogil:
            ldma_endpoint_close(c)
        self.service.port.users -= 1

    def drain(self):
        """Takes no further call: one that comes is dropped unanswered. Calls under way are answered; after them,
        in_progress and replying of statistics() are 0. close() comes next."""
        ldma_endpoint_drain(self.live())

    @property
    def replied_ns(self):
        """Is the time at which the last reply was posted, by the monotonic clock; 0: there was none."""
        return ldma_endpoint_replied_ns(self.live())

    @property
    def is_open(self):
        return bool(ldma_endpoint_is_open(self.live()))

    @property
    def calls(self):
        """Counts the calls that have come so far."""
        cdef ldma_endpoint_stats stats
        ldma_endpoint_get_stats(self.live(), &stats)
        return stats.calls

    @property
    def credits(self):
        """The calls that the peer may have under way. Raising them posts Receives; lowered ones run out."""
        cdef ldma_endpoint_stats stats
        ldma_endpoint_get_stats(self.live(), &stats)
        return stats.credits

    @credits.setter
    def credits(self, uint32_t value):
        cdef ldma_endpoint *c = self.live()
        self.service.port.users += 1
        with nogil:
            ldma_endpoint_set_credits(c, value)
        self.service.port.users -= 1

    def moved(self, uint64_t read_bytes, uint64_t written_bytes):
        """Counts what a call that Python answers has read or written of files."""
        ldma_endpoint_moved(self.live(), read_bytes, written_bytes)

    def statistics(self):
        """Returns the figures of struct ldma_endpoint_stats."""
        cdef ldma_endpoint_stats stats
        ldma_endpoint_get_stats(self.live(), &stats)
        return shown(&stats, NULL)

    def totals(self):
        """Returns, since it began: (operations, bytes read, bytes written, calls that found fewer Receives than
        credits, calls without an answer), and of latency, waits for buffers, for the send queue, the
        store and its queue: how many took less than each of TIMES_BOUNDS_NS, how many there were, ns
        together."""
        cdef ldma_endpoint_stats s
        cdef size_t i
        ldma_endpoint_get_stats(self.live(), &s)
        ret = [s.latency.count, s.read_bytes, s.written_bytes, s.receives_late, s.dropped_calls]
        for i in range(LDMA_ENDPOINT_FIELD_COUNT):
            if ldma_endpoint_fields[i].kind == LDMA_TIMES:
                ret += flat(<const ldma_times *>(<const char *>&s + ldma_endpoint_fields[i].offset))
        return tuple(ret)


@cython.final
cdef class EndpointLook:
    """Compares an endpoint's figures from one look to the next; the first interval begins with the endpoint.
    Each reader keeps a look of its own."""

    cdef ldma_endpoint_stats before

    def again(self, Endpoint endpoint not None):
        """Returns present levels, what was counted since the last look, and the times since then:
        (count, sum, half of them within, 99 of 100 within, longest), in ns."""
        cdef ldma_endpoint_stats now
        ldma_endpoint_get_stats(endpoint.live(), &now)
        ret = shown(&now, &self.before)
        self.before = now
        return ret


cdef class SlowCall:
    """Carries a call that Python has to answer: reply() or drop() ends it, once. A call that is garbage-collected
    unanswered is dropped."""

    cdef ldma_call *c
    cdef readonly Endpoint endpoint
    cdef readonly bytes message
    cdef readonly uint32_t xid
    cdef readonly uint64_t received_ns
    cdef readonly uint64_t waited_ns
    cdef readonly bint has_write
    cdef readonly uint64_t write_room
    cdef readonly uint32_t reply_room

    def __init__(self):
        raise TypeError("calls come from a service")

    def __dealloc__(self):
        if self.c != NULL:
            with nogil:
                ldma_call_drop(self.c)

    cdef ldma_call *take(self) except NULL:
        cdef ldma_call *c = self.c
        if c == NULL:
            raise ValueError("the call is over")
        self.c = NULL
        return c

    def reply(self, parts):
        """Sends the parts: bytes, and at most one part with `.data`, which goes to the write chunk if there is one."""
        cdef list texts = []
        cdef uint64_t offset = 0, at = 0
        cdef bytes message
        cdef Py_buffer view
        cdef const void *text
        cdef uint64_t length
        cdef ldma_call *c
        data = None
        for part in parts:
            if isinstance(part, bytes):
                texts.append(part)
                at += len(part)
            elif data is not None:
                raise ValueError("a reply has data once at most")
            else:
                data, offset = part.data, at
        message = b"".join(texts)
        if data is None:
            data = b""
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            c = self.take()
            text, length = PyBytes_AsString(message), <uint64_t>PyBytes_Size(message)
            self.endpoint.service.port.users += 1
            with nogil:
                ldma_call_answer(c, text, length, view.buf, <uint64_t>view.len, offset)
            self.endpoint.service.port.users -= 1
        finally:
            PyBuffer_Release(&view)

    def drop(self):
        """Ends the call without a reply."""
        cdef ldma_call *c = self.take()
        self.endpoint.service.port.users += 1
        with nogil:
            ldma_call_drop(c)
        self.endpoint.service.port.users -= 1


cdef SlowCall wrap(Service service, ldma_call *c):
    cdef SlowCall call = SlowCall.__new__(SlowCall)
    cdef uint64_t length
    cdef const uint8_t *message
    call.c = c
    call.endpoint = service.endpoints[<uintptr_t>c.endpoint]
    message = ldma_call_message(c, &length)
    call.message = (<const char *>message)[:length]
    call.xid, call.received_ns, call.waited_ns = c.xid, c.received_ns, c.waited_ns
    call.has_write, call.write_room, call.reply_room = c.has_write, c.write_room, c.reply_room
    return call
