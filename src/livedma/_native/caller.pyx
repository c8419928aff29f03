# SPDX-License-Identifier: BSD-2-Clause
"""Makes calls of RPC-over-RDMA on a queue pair: it sends as many as the peer grants, and checks the replies."""
import os
from typing import NamedTuple

cimport cython
from libc.errno cimport EAGAIN
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from livedma._native.rdma cimport Engine, QueuePair, check, ldma_qp, ldma_wc

from livedma._native import rdma as native

cdef extern from "rpc/caller.h" nogil:
    struct ldma_segment:
        uint32_t key
        uint32_t length
        uint64_t va
    struct ldma_caller_config:
        ldma_qp *qp
        uint32_t calls
        uint32_t send_bytes
        uint32_t receive_bytes
        uint8_t *memory
        uint64_t va
        uint32_t lkey
        uint32_t tag
        uint32_t first_xid
    struct ldma_caller_counters:
        uint64_t calls
        uint64_t replies
        uint64_t strays
        uint64_t errors
        uint64_t refused
    struct ldma_caller:
        uint32_t open
        uint32_t granted
        uint32_t peak
        int error
        uint8_t status
        ldma_caller_counters counters
    struct ldma_request:
        const uint8_t *message
        uint32_t length
        ldma_segment message_chunk
        ldma_segment read
        uint32_t position
        ldma_segment write
        ldma_segment reply
        uint64_t user
    enum ldma_caller_event:
        LDMA_CALLER_NOTHING
        LDMA_CALLER_ENDED
        LDMA_CALLER_BROKEN
    struct ldma_answer:
        uint64_t user
        uint32_t number
        uint32_t xid
        int error
        const uint8_t *message
        uint32_t length
        uint32_t placed
        uint32_t reply_length
        bint has_receive
        uint32_t receive
    uint32_t ldma_caller_receives(uint32_t calls)
    uint64_t ldma_caller_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes)
    int ldma_caller_init(ldma_caller *caller, const ldma_caller_config *config)
    void ldma_caller_destroy(ldma_caller *caller)
    int ldma_caller_prepare(ldma_caller *caller)
    int ldma_caller_limit(ldma_caller *caller, uint32_t send_bytes)
    int ldma_caller_take(ldma_caller *caller)
    void ldma_caller_drop(ldma_caller *caller, uint32_t number)
    uint32_t ldma_caller_xid(const ldma_caller *caller, uint32_t number)
    uint32_t ldma_caller_inline_room(const ldma_caller *caller, const ldma_request *request)
    int ldma_caller_post(ldma_caller *caller, uint32_t number, const ldma_request *request)
    ldma_caller_event ldma_caller_complete(ldma_caller *caller, const ldma_wc *wc,
                                           ldma_answer *ret)
    int ldma_caller_release(ldma_caller *caller, uint32_t receive)
    bint ldma_caller_end_one(ldma_caller *caller, ldma_answer *ret)

cdef extern from "base/bytes.h" nogil:
    void put32(uint8_t *p, uint32_t v)

cdef dict NUMBERS = {name: number for number, name in native.STATUSES.items()}
cdef dict OPCODES = {name: number for number, name in native.COMPLETED.items()}


class Ended(NamedTuple):
    """Says how a call ended. error: 0 or an errno; message: None if it is in the reply chunk."""

    user: int
    error: int
    message: bytes | None
    placed: int
    reply_length: int
    xid: int


def receives(uint32_t calls):
    """Returns how many Receives the queue pair of a caller has to hold."""
    return ldma_caller_receives(calls)


def memory_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes):
    """Returns how many bytes of memory a caller needs."""
    return ldma_caller_bytes(calls, send_bytes, receive_bytes)


cdef int fill(ldma_segment *segment, piece) except -1:
    if piece is not None:
        segment.key, segment.va, segment.length = piece
    return 0


@cython.no_gc_clear  # what it holds must outlive it
cdef class Caller:
    """Sends calls and takes their replies. One thread at a time uses it. A piece of memory is (key, va, length)."""

    cdef ldma_caller c
    cdef QueuePair qp
    cdef Engine engine
    cdef object held

    def __init__(self, QueuePair qp not None, memory, *, uint32_t calls, uint32_t send_bytes,
                 uint32_t receive_bytes):
        """Makes a caller. memory: its key, its address for the device, and a buffer; no peer may have rights to it."""
        cdef ldma_caller_config config
        cdef uint8_t[::1] view = memory[2]
        if self.held is not None:
            raise ValueError("the caller is set up already")
        if <uint64_t>view.shape[0] < ldma_caller_bytes(calls, send_bytes, receive_bytes):
            raise ValueError("the memory is too small")
        config.qp, config.calls = qp.live(), calls
        config.send_bytes, config.receive_bytes = send_bytes, receive_bytes
        config.lkey, config.va, config.memory = memory[0], memory[1], &view[0]
        config.tag, config.first_xid = 0, int.from_bytes(os.urandom(4), "little")
        check(ldma_caller_init(&self.c, &config))
        self.qp, self.engine, self.held = qp, qp.engine, view

    def __dealloc__(self):
        ldma_caller_destroy(&self.c)

    def prepare(self):
        """Posts the Receives. It is called once, before the peer may send."""
        cdef int error
        self.qp.live()
        self.engine.acquire()
        error = ldma_caller_prepare(&self.c)
        self.engine.release()
        check(error)

    def limit(self, uint32_t send_bytes):
        """Limits SENDs to the bytes that the peer takes."""
        check(ldma_caller_limit(&self.c, send_bytes))

    def inline_room(self, *, bint read=False, bint write=False, bint reply=False):
        """Returns the most bytes of a message that can be sent inline, if the call has such chunks."""
        cdef ldma_request request
        memset(&request, 0, sizeof(request))
        request.read.length, request.write.length, request.reply.length = read, write, reply
        return ldma_caller_inline_room(&self.c, &request)

    def call(self, uint64_t user, const uint8_t[::1] message not None, *, uint8_t[::1] long_message=None,
             message_chunk=None, read=None, uint32_t position=0, write=None, reply=None):
        """Sends a call, whose XID it overwrites. False: there is no room for it now. long_message: the memory that
        message_chunk describes, with a message that is too long to be sent inline."""
        cdef ldma_request request
        cdef int number, error
        memset(&request, 0, sizeof(request))
        self.qp.live()
        if message.shape[0] < 8 or message.shape[0] > 0x7fffffff or (
                long_message is not None and long_message.shape[0] < message.shape[0]):
            raise ValueError("this is no RPC message")
        request.message, request.length = &message[0], <uint32_t>message.shape[0]
        request.position, request.user = position, user
        fill(&request.message_chunk, message_chunk)
        fill(&request.read, read)
        fill(&request.write, write)
        fill(&request.reply, reply)
        number = ldma_caller_take(&self.c)
        if number == -EAGAIN:
            return False
        check(number)
        if long_message is not None:
            put32(&long_message[0], ldma_caller_xid(&self.c, number))
        self.engine.acquire()
        error = ldma_caller_post(&self.c, number, &request)
        self.engine.release()
        if error:
            ldma_caller_drop(&self.c, number)
        if error == -EAGAIN:
            return False
        check(error)
        return True

    def complete(self, completions):
        """Returns the calls that these completions of the queue pair ended. All calls end if the connection broke;
        `error` tells that."""
        cdef ldma_wc wc
        cdef ldma_answer answer
        cdef ldma_caller_event event
        cdef list ended = []
        cdef int error
        memset(&wc, 0, sizeof(wc))
        for one in completions:
            wc.wr_id, wc.byte_length = one.wr_id, one.length
            wc.status, wc.opcode = NUMBERS[one.status], OPCODES[one.operation]
            event = ldma_caller_complete(&self.c, &wc, &answer)
            if event == LDMA_CALLER_ENDED:
                ended.append(self.answer(&answer))
            if answer.has_receive and self.qp.c != NULL:
                self.engine.acquire()
                error = ldma_caller_release(&self.c, answer.receive)
                self.engine.release()
                check(error)
        if self.c.error:
            while ldma_caller_end_one(&self.c, &answer):
                ended.append(self.answer(&answer))
        return ended

    cdef object answer(self, const ldma_answer *answer):
        cdef object message = None
        if answer.message != NULL:
            message = (<const char *>answer.message)[:answer.length]
        return Ended(answer.user, -answer.error, message, answer.placed, answer.reply_length,
                     answer.xid)

    @property
    def error(self):
        """Is the errno of what broke the connection; 0: it works."""
        return -self.c.error

    @property
    def status(self):
        """Names the status of the completion that reported a lost connection."""
        return native.STATUSES[self.c.status]

    @property
    def granted(self):
        """Counts the calls that the peer allows at once."""
        return self.c.granted

    @property
    def open(self):
        return self.c.open

    @property
    def counters(self):
        """Counts what the caller did. peak: the most calls that were open at once."""
        return {**self.c.counters, "peak": self.c.peak}
