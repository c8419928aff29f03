"""The server's side of RPC-over-RDMA: a device's service, its endpoints, and the calls that are for Python.

Contracts are in storage/endpoint.h and storage/server.h.
"""
cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EPROTONOSUPPORT
from libc.stdint cimport UINT64_MAX, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from livedma._native.pool cimport Pool, ldma_pool
from livedma._native.port cimport Port, ldma_port
from livedma._native.rdma cimport CompletionQueue, QueuePair, check, ldma_cq, ldma_qp
from livedma._native.times cimport *

cdef extern from *:
    """
    #include "server.h"
    static const struct { const char *name; size_t offset; } ldma_endpoint_error_names[] = {
    #define X(name) {#name, offsetof(struct ldma_endpoint_stats, errors.name)},
    LDMA_ENDPOINT_ERRORS(X)
    #undef X
    };
    #define LDMA_ENDPOINT_ERROR_COUNT \\
        (sizeof(ldma_endpoint_error_names) / sizeof(ldma_endpoint_error_names[0]))
    """
    struct error_name:
        const char *name
        size_t offset
    const error_name *ldma_endpoint_error_names
    size_t LDMA_ENDPOINT_ERROR_COUNT

cdef extern from "rpcrdma.h" nogil:
    int LDMA_RPCRDMA_CHUNKS, LDMA_RPCRDMA_SEGMENTS
    int LDMA_RPCRDMA_ERR_VERS, LDMA_RPCRDMA_ERR_CHUNK
    struct ldma_rpcrdma_limits:
        uint32_t chunks
        uint32_t segments
        uint64_t list_bytes
    struct ldma_rpcrdma_segment:
        uint64_t offset
        uint32_t handle
        uint32_t length
    struct ldma_rpcrdma_chunk:
        uint32_t position
        uint32_t first
        uint32_t count
        uint64_t length
    struct ldma_rpcrdma:
        uint32_t xid
        uint32_t version
        uint32_t credits
        uint32_t proc
        uint32_t error
        uint32_t lowest
        uint32_t highest
        uint32_t header_bytes
        uint32_t read_count
        uint32_t write_count
        bint has_reply
        ldma_rpcrdma_segment *segments
        ldma_rpcrdma_chunk *reads
        ldma_rpcrdma_chunk *writes
        ldma_rpcrdma_chunk reply
    int ldma_rpcrdma_decode(const uint8_t *data, uint32_t length, const ldma_rpcrdma_limits *limits,
                            ldma_rpcrdma_segment *segments, uint32_t room, ldma_rpcrdma *ret)
    uint32_t ldma_rpcrdma_bytes(const ldma_rpcrdma *header)
    void ldma_rpcrdma_encode(const ldma_rpcrdma *header, uint8_t *ret)
    uint32_t ldma_rpcrdma_reply_bytes(const ldma_rpcrdma *call, bint is_long)
    void ldma_rpcrdma_encode_reply(const ldma_rpcrdma *call, uint32_t credits, uint64_t data_bytes,
                                   bint is_long, uint64_t reply_bytes, uint8_t *ret)
    uint32_t ldma_rpcrdma_encode_error(const uint8_t *data, uint32_t credits, int error, uint8_t *ret)
    bint ldma_rpcrdma_is_answered(const uint8_t *data, uint32_t length)
    uint32_t ldma_rpcrdma_only_handle(const ldma_rpcrdma *header)

cdef extern from "endpoint.h" nogil:
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
        uint32_t posted
        uint32_t granted
        uint32_t in_progress
        uint32_t replying
        uint32_t waiting_pieces
        uint32_t queued_sends
        uint32_t asked
        uint64_t calls
        uint64_t fast_calls
        uint64_t slow_calls
        uint64_t replies
        uint64_t long_replies
        uint64_t dropped_calls
        uint64_t bytes_received
        uint64_t bytes_sent
        uint64_t bytes_pulled
        uint64_t bytes_pushed
        uint64_t invalidations
        uint64_t receives_late
        uint64_t gathered_bytes
        uint64_t read_bytes
        uint64_t written_bytes
        ldma_times buffer_waits
        ldma_times send_waits
        ldma_times latency
        ldma_times storage
        ldma_times storage_queue
    void ldma_endpoint_start(ldma_endpoint *endpoint)
    void ldma_endpoint_close(ldma_endpoint *endpoint)
    void ldma_endpoint_put(ldma_endpoint *endpoint)
    void ldma_endpoint_set_credits(ldma_endpoint *endpoint, uint32_t credits)
    void ldma_endpoint_moved(ldma_endpoint *endpoint, uint64_t read_bytes, uint64_t written_bytes)
    bint ldma_endpoint_is_open(ldma_endpoint *endpoint)
    void ldma_endpoint_get_stats(ldma_endpoint *endpoint, ldma_endpoint_stats *ret)
    const uint8_t *ldma_call_message(const ldma_call *call, uint64_t *ret_length)
    void ldma_call_answer(ldma_call *call, const void *message, uint64_t length, const void *data,
                          uint64_t data_length, uint64_t data_offset)
    void ldma_call_drop(ldma_call *call)

cdef extern from "server.h" nogil:
    struct ldma_service:
        pass
    struct ldma_service_config:
        ldma_port *port
        ldma_cq *cq
        uint32_t completions
        uint64_t spin_ns
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
    ldma_call *ldma_service_next_call(ldma_service *service, uint64_t timeout_ns)
    ldma_endpoint *ldma_service_next_over(ldma_service *service, uint64_t timeout_ns)
    bint ldma_service_is_stopped(ldma_service *service)
    ldma_service_stats_t ldma_service_stats(ldma_service *service)


cdef uint64_t nanoseconds(timeout) except? 0xffffffffffffffff:
    return UINT64_MAX if timeout is None else <uint64_t>(max(timeout, 0) * 1e9)


cdef tuple histogram(const ldma_times *times):
    """(count, sum, longest, [(least of a bucket, how many)]), all in ns."""
    buckets = [(ldma_times_least_ns(i), times.buckets[i])
               for i in range(LDMA_TIMES_BUCKETS) if times.buckets[i]]
    return times.count, times.sum_ns, times.max_ns, buckets


@cython.no_gc_clear  # what it holds must outlive it
cdef class Service:
    """The thread that serves all endpoints of a device. It runs until stop()."""

    cdef ldma_service *c
    cdef Port port
    cdef CompletionQueue cq
    cdef dict endpoints
    cdef object program
    cdef bint is_running

    def __init__(self, Port port not None, CompletionQueue cq not None, uint32_t completions,
                 spin=0.0):
        """cq: of all queue pairs whose endpoints are served; it holds so many completions."""
        cdef ldma_service_config config
        if self.c != NULL:
            raise ValueError("the service is there already")
        if port.closed:
            raise ValueError("the device is closed")
        self.port, self.cq, self.endpoints = port, cq, {}
        config.port, config.cq, config.completions = port.port, cq.live(), completions
        config.spin_ns = nanoseconds(spin)
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
        """Ends the thread. Every endpoint has to be over, and taken by next_over()."""
        self.live()
        if self.endpoints:
            raise ValueError("endpoints are not over yet")
        self.end()

    @property
    def is_stopped(self):
        return bool(ldma_service_is_stopped(self.live()))

    def set_program(self, capsule):
        """Who is shown calls first: a capsule "ldma_program", or None."""
        cdef ldma_program *program = NULL
        if capsule is not None:
            program = <ldma_program *>PyCapsule_GetPointer(capsule, "ldma_program")
        ldma_service_set_program(self.live(), program)
        self.program = capsule

    def next_call(self, timeout=None):
        """A call for Python; None after timeout seconds, or when the service has stopped."""
        cdef ldma_service *c = self.live()
        cdef uint64_t timeout_ns = nanoseconds(timeout)
        cdef ldma_call *call
        with nogil:
            call = ldma_service_next_call(c, timeout_ns)
        PyErr_CheckSignals()
        return None if call == NULL else wrap(self, call)

    def next_over(self, timeout=None):
        """An endpoint of which nothing is left to do, each once; None as above."""
        cdef ldma_service *c = self.live()
        cdef uint64_t timeout_ns = nanoseconds(timeout)
        cdef ldma_endpoint *endpoint
        with nogil:
            endpoint = ldma_service_next_over(c, timeout_ns)
        PyErr_CheckSignals()
        return None if endpoint == NULL else self.endpoints.pop(<uintptr_t>endpoint)

    @property
    def counters(self):
        cdef ldma_service_stats_t stats = ldma_service_stats(self.live())
        return {"wakes": stats.wakes, "batches": stats.batches, "completions": stats.completions,
                "locks": stats.locks, "busy_ns": stats.busy_ns}


@cython.no_gc_clear
cdef class Endpoint:
    """A connection. Its queue pair and its pools have to stay until the service says that it is over."""

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
        """The queue pair is ready to send: what waits for that goes."""
        cdef ldma_endpoint *c = self.live()
        self.service.port.users += 1  # so that the device waits for us
        with nogil:
            ldma_endpoint_start(c)
        self.service.port.users -= 1

    def close(self):
        """Ends the connection; what is being worked on gets errors. Again does nothing."""
        cdef ldma_endpoint *c = self.live()
        self.service.port.users += 1
        with nogil:
            ldma_endpoint_close(c)
        self.service.port.users -= 1

    @property
    def is_open(self):
        return bool(ldma_endpoint_is_open(self.live()))

    @property
    def calls(self):
        """That have come so far."""
        cdef ldma_endpoint_stats stats
        ldma_endpoint_get_stats(self.live(), &stats)
        return stats.calls

    @property
    def credits(self):
        """How many calls the peer may have under way. Set: Receives are posted, or run out."""
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
        """A call that Python answers has read or written so much of files."""
        ldma_endpoint_moved(self.live(), read_bytes, written_bytes)

    def statistics(self):
        """struct ldma_endpoint_stats."""
        cdef ldma_endpoint_stats s
        cdef const char *base = <const char *>&s
        cdef size_t i
        ldma_endpoint_get_stats(self.live(), &s)
        return {
            "credits": s.credits, "posted": s.posted, "granted": s.granted, "asked": s.asked,
            "in_progress": s.in_progress, "replying": s.replying,
            "waiting_pieces": s.waiting_pieces, "queued_sends": s.queued_sends,
            "calls": s.calls, "fast_calls": s.fast_calls, "slow_calls": s.slow_calls,
            "replies": s.replies, "long_replies": s.long_replies,
            "dropped_calls": s.dropped_calls,
            "bytes_received": s.bytes_received, "bytes_sent": s.bytes_sent,
            "bytes_pulled": s.bytes_pulled, "bytes_pushed": s.bytes_pushed,
            "invalidations": s.invalidations, "receives_late": s.receives_late,
            "gathered_bytes": s.gathered_bytes,
            "read_bytes": s.read_bytes, "written_bytes": s.written_bytes,
            "errors": {
                ldma_endpoint_error_names[i].name.decode():
                    (<const uint64_t *>(base + ldma_endpoint_error_names[i].offset))[0]
                for i in range(LDMA_ENDPOINT_ERROR_COUNT)
            },
            "buffer_waits": histogram(&s.buffer_waits), "send_waits": histogram(&s.send_waits),
            "latency": histogram(&s.latency), "storage": histogram(&s.storage),
            "storage_queue": histogram(&s.storage_queue),
        }

    def totals(self):
        """Since it began: (operations, bytes read, bytes written, calls that found fewer Receives than
        credits, calls without an answer), and of latency, waits for buffers, for the send queue, the
        store and its queue: how many took less than each of TIMES_BOUNDS_NS, how many there were, ns
        together."""
        cdef ldma_endpoint_stats s
        ldma_endpoint_get_stats(self.live(), &s)
        ret = [s.latency.count, s.read_bytes, s.written_bytes, s.receives_late, s.dropped_calls]
        ret += flat(&s.latency)
        ret += flat(&s.buffer_waits)
        ret += flat(&s.send_waits)
        ret += flat(&s.storage)
        ret += flat(&s.storage_queue)
        return tuple(ret)


@cython.final
cdef class EndpointLook:
    """What an endpoint does from one look to the next; the first interval begins with the endpoint.
    Each who looks has one of its own."""

    cdef ldma_endpoint_stats before

    def again(self, Endpoint endpoint not None):
        """What is now, what was counted since the last look, and how long it took:
        (count, sum, half of them within, 99 of 100 within, longest), in ns."""
        cdef ldma_endpoint_stats now
        cdef ldma_endpoint_stats *before = &self.before
        ldma_endpoint_get_stats(endpoint.live(), &now)
        ret = {
            "credits": now.credits, "posted": now.posted, "granted": now.granted,
            "asked": now.asked, "in_progress": now.in_progress,
            "waiting_pieces": now.waiting_pieces,
            "receives_late": now.receives_late - before.receives_late,
            "dropped_calls": now.dropped_calls - before.dropped_calls,
            "read_bytes": now.read_bytes - before.read_bytes,
            "written_bytes": now.written_bytes - before.written_bytes,
            "buffer_waits": summary(&before.buffer_waits, &now.buffer_waits),
            "send_waits": summary(&before.send_waits, &now.send_waits),
            "latency": summary(&before.latency, &now.latency),
            "storage": summary(&before.storage, &now.storage),
            "storage_queue": summary(&before.storage_queue, &now.storage_queue),
        }
        self.before = now
        return ret


cdef class SlowCall:
    """A call that is for Python: reply() or drop() ends it, once. Who forgets it has dropped it."""

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
        """Sends bytes, and data where a part has it (`.data`): to the write chunk if there is one."""
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
            text, length = PyBytes_AS_STRING(message), <uint64_t>PyBytes_GET_SIZE(message)
            self.endpoint.service.port.users += 1
            with nogil:
                ldma_call_answer(c, text, length, view.buf, <uint64_t>view.len, offset)
            self.endpoint.service.port.users -= 1
        finally:
            PyBuffer_Release(&view)

    def drop(self):
        """Ends it without a reply."""
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


cdef tuple chunk_of(const ldma_rpcrdma *header, const ldma_rpcrdma_chunk *chunk):
    return tuple(
        (header.segments[i].handle, header.segments[i].length, header.segments[i].offset)
        for i in range(chunk.first, chunk.first + chunk.count)
    )


@cython.final
cdef class Header:
    """A header as the C code sees it; segments are (handle, length, offset).

    `error` is 0, or what a responder answers: ERR_VERS or ERR_CHUNK.
    """

    cdef ldma_rpcrdma c
    cdef ldma_rpcrdma_segment segments[256]
    cdef readonly int error
    cdef bytes data

    def __init__(self, bytes data not None, uint32_t chunks=16, uint32_t segments=256,
                 uint64_t list_bytes=16 << 20):
        cdef ldma_rpcrdma_limits limits
        cdef int result
        if chunks > LDMA_RPCRDMA_CHUNKS or segments > LDMA_RPCRDMA_SEGMENTS:
            raise ValueError("more than there is room for")
        limits.chunks, limits.segments, limits.list_bytes = chunks, segments, list_bytes
        memset(&self.c, 0, sizeof(self.c))
        self.data = data
        result = ldma_rpcrdma_decode(<const uint8_t *>PyBytes_AS_STRING(data), len(data), &limits,
                                     self.segments, 256, &self.c)
        if result == -EPROTONOSUPPORT:
            self.error = LDMA_RPCRDMA_ERR_VERS
        elif result:
            self.error = LDMA_RPCRDMA_ERR_CHUNK

    @property
    def fields(self):
        """xid, version, credits, proc, bytes of the header."""
        c = self.c
        return c.xid, c.version, c.credits, c.proc, c.header_bytes

    @property
    def reads(self):
        return tuple((self.c.reads[i].position, chunk_of(&self.c, &self.c.reads[i]))
                     for i in range(self.c.read_count))

    @property
    def writes(self):
        return tuple(chunk_of(&self.c, &self.c.writes[i]) for i in range(self.c.write_count))

    @property
    def reply(self):
        return chunk_of(&self.c, &self.c.reply) if self.c.has_reply else None

    @property
    def rdma_error(self):
        """Of an RDMA_ERROR: its code, and the versions with ERR_VERS."""
        if self.c.error == LDMA_RPCRDMA_ERR_VERS:
            return self.c.error, (self.c.lowest, self.c.highest)
        return self.c.error, None

    @property
    def only_handle(self):
        return ldma_rpcrdma_only_handle(&self.c)

    def encode(self):
        """Its bytes, made anew."""
        out = bytearray(ldma_rpcrdma_bytes(&self.c))
        cdef uint8_t[::1] view = out
        ldma_rpcrdma_encode(&self.c, &view[0])
        return bytes(out)

    def encode_reply(self, uint32_t granted, uint64_t data_bytes=0, reply_bytes=None):
        """The header of a reply to it; reply_bytes: by the reply chunk."""
        cdef bint is_long = reply_bytes is not None
        out = bytearray(ldma_rpcrdma_reply_bytes(&self.c, is_long))
        cdef uint8_t[::1] view = out
        ldma_rpcrdma_encode_reply(&self.c, granted, data_bytes, is_long, reply_bytes or 0, &view[0])
        return bytes(out)

    def encode_error(self, uint32_t granted):
        """How the error is answered; None: not at all."""
        cdef uint8_t out[28]
        cdef uint32_t length
        cdef const uint8_t *data = <const uint8_t *>PyBytes_AS_STRING(self.data)
        if not self.error or not ldma_rpcrdma_is_answered(data, len(self.data)):
            return None
        length = ldma_rpcrdma_encode_error(data, granted, self.error, out)
        return (<char *>out)[:length]
