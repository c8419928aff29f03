# SPDX-License-Identifier: BSD-2-Clause
"""Runs the load: its sessions of NFSv4.1 read and write without entering Python; see load/load.h."""
import os
from typing import NamedTuple

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.errno cimport EBUSY
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from livedma._native.latency cimport Latency, ldma_latency
from livedma._native.port cimport Port, ldma_port
from livedma._native.rdma cimport CompletionQueue, QueuePair, check, ldma_cq, ldma_qp

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int microseconds)

cdef extern from "base/wake.h" nogil:
    void ldma_unsignal(int fd)

cdef extern from "rpc/caller.h" nogil:
    uint64_t ldma_caller_bytes(uint32_t calls, uint32_t send_bytes, uint32_t receive_bytes)

cdef extern from "load/load.h" nogil:
    int LDMA_LOAD_STATUSES
    struct ldma_io_target:
        uint8_t session[16]
        uint8_t stateid[16]
        uint8_t handle[128]
        uint8_t credential[416]
        uint32_t handle_length
        uint32_t credential_length
    struct ldma_load_config:
        ldma_port *port
        ldma_cq *cq
        uint64_t spin_ns
        uint32_t size
        uint32_t depth
        uint8_t rw
        bint is_sequential
        bint verifies
        uint64_t interval_ns
    struct ldma_load_rdma:
        ldma_qp *qp
        uint32_t calls
        uint32_t send_bytes
        uint32_t receive_bytes
        uint8_t *inline_memory
        uint8_t *data_memory
        uint64_t inline_va
        uint64_t data_va
        uint32_t inline_key
        uint32_t data_key
        uint32_t first_xid
    struct ldma_load_session_config:
        uint32_t link
        uint32_t slots
        const uint32_t *sequences
        uint64_t seed
        uint64_t file_bytes
        ldma_io_target target
    struct ldma_load_counters:
        uint64_t reads
        uint64_t writes
        uint64_t read_bytes
        uint64_t written_bytes
        uint64_t fills
        uint64_t filled_bytes
        uint64_t errors
        uint64_t wrong
        uint64_t repeats
        uint64_t delays
        uint64_t waited
        uint64_t waited_ns
    struct ldma_load_status:
        uint32_t operation
        uint32_t status
        uint64_t count
    struct ldma_load_figures_t "ldma_load_figures":
        uint64_t now_ns
        uint64_t began_ns
        uint64_t cpu_ns
        ldma_load_counters counters
        uint32_t sessions
        uint32_t filled
        uint32_t running
        uint32_t failed
        uint32_t lost
        uint32_t open
        uint64_t granted
        ldma_latency latency
        ldma_load_status statuses[16]
    struct ldma_load_session_figures_t "ldma_load_session_figures":
        ldma_load_counters counters
        ldma_latency latency
        uint64_t began_ns
        uint64_t gap_ns
        uint64_t pause_ns
        uint32_t moves
        uint32_t limit
        char words[192]
    struct ldma_load:
        pass
    struct ldma_load_reply:
        uint64_t user
        int error
        uint8_t *message
        uint32_t length
    uint32_t ldma_load_buffer_bytes(uint32_t size)
    int ldma_load_create(const ldma_load_config *config, ldma_load **ret)
    void ldma_load_destroy(ldma_load *load)
    int ldma_load_add_rdma(ldma_load *load, const ldma_load_rdma *rdma)
    int ldma_load_add_tcp(ldma_load *load, int fd)
    int ldma_load_limit(ldma_load *load, uint32_t link, uint32_t send_bytes)
    int ldma_load_pair(ldma_load *load, uint32_t link, uint32_t other)
    int ldma_load_move_session(ldma_load *load, uint32_t session, uint32_t link)
    int ldma_load_close_link(ldma_load *load, uint32_t link)
    int ldma_load_resume_session(ldma_load *load, uint32_t session, uint32_t link)
    int ldma_load_renew_session(ldma_load *load, uint32_t session, const ldma_load_session_config *config)
    uint64_t ldma_load_heard_ns(ldma_load *load)
    uint64_t ldma_load_session_bytes(uint32_t depth, uint64_t blocks)
    void ldma_load_set_active(ldma_load *load, uint32_t sessions)
    int ldma_load_add_session(ldma_load *load, const ldma_load_session_config *config)
    void ldma_load_begin(ldma_load *load)
    void ldma_load_run(ldma_load *load)
    void ldma_load_stop(ldma_load *load)
    void ldma_load_end(ldma_load *load)
    void ldma_load_figures(ldma_load *load, ldma_load_figures_t *ret)
    int ldma_load_session_figures(ldma_load *load, uint32_t session,
                                  ldma_load_session_figures_t *ret)
    int ldma_load_call(ldma_load *load, uint32_t link, uint64_t user, const uint8_t *message,
                       uint32_t length)
    uint32_t ldma_load_places(ldma_load *load, int32_t *ret, uint32_t room)
    bint ldma_load_take_reply(ldma_load *load, ldma_load_reply *ret)
    int ldma_load_event_fd(const ldma_load *load)
    int ldma_load_link_error(ldma_load *load, uint32_t link)

cdef tuple RW = ("read", "write", "mix")

#: Load.places() has these instead of a session's connection: see load/load.h.
FAILED = -1
LOST = -2


class Counters(NamedTuple):
    """Counts of what sessions did; see load/load.h."""

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    fills: int
    filled_bytes: int
    errors: int
    wrong: int
    repeats: int
    delays: int
    waited: int
    waited_ns: int


class Figures(NamedTuple):
    """Holds the figures of all sessions together. latency: since the figures were last taken. lost: sessions whose
    connection broke, until they are resumed or renewed."""

    now_ns: int
    began_ns: int
    cpu_ns: int
    counters: Counters
    sessions: int
    filled: int
    running: int
    failed: int
    lost: int
    open: int
    granted: int
    latency: Latency
    statuses: dict[tuple[int, int], int]


class SessionFigures(NamedTuple):
    """Holds the figures of one session. slots: those that are used now. words: the first error, or "". gap_ns: its
    longest time without a reply; pause_ns: that around its moves."""

    counters: Counters
    latency: Latency
    began_ns: int
    gap_ns: int
    pause_ns: int
    moves: int
    slots: int
    words: str


cdef object counters(const ldma_load_counters *c):
    return Counters(c.reads, c.writes, c.read_bytes, c.written_bytes, c.fills, c.filled_bytes, c.errors,
                    c.wrong, c.repeats, c.delays, c.waited, c.waited_ns)


cdef int copy(uint8_t *into, size_t room, bytes data, str what) except -1:
    if <size_t>len(data) > room:
        raise ValueError(f"{what} of {len(data)} bytes")
    memcpy(into, <const char *>data, len(data))
    return 0


cdef class _Target:
    """Holds the session and the file that a load uses, in C's form."""

    cdef ldma_load_session_config config
    cdef uint32_t *sequences

    def __init__(self, uint32_t link, bytes session_id, sequences, bytes handle, bytes stateid, bytes credential):
        cdef uint32_t i
        memset(&self.config, 0, sizeof(self.config))
        self.config.link, self.config.slots = link, len(sequences)
        if len(session_id) != 16 or len(stateid) != 16:
            raise ValueError("ids of sessions and state have 16 bytes")
        copy(self.config.target.session, 16, session_id, "a session's id")
        copy(self.config.target.stateid, 16, stateid, "a stateid")
        copy(self.config.target.handle, sizeof(self.config.target.handle), handle, "a filehandle")
        copy(self.config.target.credential, sizeof(self.config.target.credential), credential, "a credential")
        self.config.target.handle_length = <uint32_t>len(handle)
        self.config.target.credential_length = <uint32_t>len(credential)
        if self.sequences == NULL:
            self.sequences = <uint32_t *>PyMem_Calloc(max(self.config.slots, 1), sizeof(uint32_t))
        if self.sequences == NULL:
            raise MemoryError
        for i in range(self.config.slots):
            self.sequences[i] = sequences[i]
        self.config.sequences = self.sequences

    def __dealloc__(self):
        PyMem_Free(self.sequences)


def session_bytes(uint32_t depth, uint64_t blocks):
    """Returns the bytes of memory that one session takes."""
    return ldma_load_session_bytes(depth, blocks)


def buffer_bytes(uint32_t size):
    """Returns the bytes of data memory that a connection over RDMA needs for each call."""
    return ldma_load_buffer_bytes(size)


@cython.no_gc_clear  # what it holds must outlive it
cdef class Load:
    """Runs sessions that read and write. One thread calls run(); any thread may make all other calls."""

    cdef ldma_load *c
    cdef Port port
    cdef CompletionQueue cq
    cdef dict links  # by the connection's number: the objects that it uses
    cdef uint32_t runs

    def __init__(self, Port port=None, CompletionQueue cq=None, *, uint32_t size, uint32_t depth,
                 str rw, bint sequential=False, bint verify=True, uint64_t interval_ns=0,
                 double spin=0.0):
        """Makes a load: over RDMA if given a device and a queue for all its connections, else over TCP. interval_ns:
        between operations of one session; 0: one follows the other. spin: seconds."""
        cdef ldma_load_config config
        if self.c != NULL:
            raise ValueError("the load is set up already")
        if (port is None) != (cq is None):
            raise ValueError("a device and a queue go together")
        memset(&config, 0, sizeof(config))
        if port is not None:
            config.port, config.cq = port.port, cq.live()
        config.size, config.depth, config.rw = size, depth, RW.index(rw)
        config.is_sequential, config.verifies = sequential, verify
        config.interval_ns = interval_ns
        config.spin_ns = <uint64_t>(min(max(spin, 0.0), 1.0) * 1e9)
        check(ldma_load_create(&config, &self.c))
        self.port, self.cq, self.links = port, cq, {}

    def __dealloc__(self):
        if self.c != NULL:
            ldma_load_destroy(self.c)

    cdef ldma_load *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the load is closed")
        return self.c

    def add_rdma(self, QueuePair qp not None, inline_memory, data_memory, *, uint32_t calls,
                 uint32_t send_bytes, uint32_t receive_bytes):
        """Adds a connection, posts its Receives at once, and returns its number. Memory: key, address for the device,
        buffer."""
        cdef ldma_load_rdma rdma
        cdef ldma_load *load = self.live()
        cdef uint8_t[::1] inlined = inline_memory[2], data = data_memory[2]
        cdef int link
        if <uint64_t>inlined.shape[0] < ldma_caller_bytes(calls, send_bytes, receive_bytes):
            raise ValueError("the inline memory is too small")
        rdma.qp, rdma.calls = qp.live(), calls
        rdma.send_bytes, rdma.receive_bytes = send_bytes, receive_bytes
        rdma.inline_key, rdma.inline_va, rdma.inline_memory = (
            inline_memory[0], inline_memory[1], &inlined[0])
        rdma.data_key, rdma.data_va, rdma.data_memory = data_memory[0], data_memory[1], &data[0]
        rdma.first_xid = int.from_bytes(os.urandom(4), "little")
        with nogil:
            link = ldma_load_add_rdma(load, &rdma)
        check(link)
        self.links[link] = (qp, inlined, data)
        return link

    def add_tcp(self, int fd):
        """Adds a connection and returns its number. The socket must stay open until close_link or close."""
        cdef ldma_load *load = self.live()
        cdef int link
        with nogil:
            link = ldma_load_add_tcp(load, fd)
        return check(link)

    def pair(self, uint32_t link, uint32_t other):
        """Pairs two connections: if one breaks, its sessions go on by the other."""
        check(ldma_load_pair(self.live(), link, other))

    def move_session(self, uint32_t session, uint32_t link):
        """Lets a session send its calls by that connection, to which it is bound as well, from now on."""
        cdef ldma_load *load = self.live()
        cdef int error
        with nogil:
            error = ldma_load_move_session(load, session, link)
        check(error)

    def close_link(self, uint32_t link):
        """Ends the use of a connection; False: a session or a call still uses it. The caller closes its queue pair
        before its memory."""
        cdef ldma_load *load = self.live()
        cdef int error
        with nogil:
            error = ldma_load_close_link(load, link)
        if error == -EBUSY:
            return False
        check(error)
        self.links.pop(link, None)
        return True

    def set_active(self, uint32_t sessions):
        """Makes the first `sessions` sessions active; the others begin no operations until they are active again."""
        cdef ldma_load *load = self.live()
        with nogil:
            ldma_load_set_active(load, sessions)

    def limit(self, uint32_t link, uint32_t send_bytes):
        """Limits the SENDs of a connection to the bytes that its peer takes."""
        check(ldma_load_limit(self.live(), link, send_bytes))

    def add_session(self, uint32_t link, *, bytes session_id not None, sequences, bytes handle not None,
                    bytes stateid not None, bytes credential not None, uint64_t seed,
                    uint64_t file_bytes):
        """Adds a session and returns its number. sequences: the last used one of each slot. credential: the XDR of the
        credential and the verifier."""
        cdef ldma_load *load = self.live()
        cdef _Target target = _Target(link, session_id, sequences, handle, stateid, credential)
        cdef int result
        target.config.seed, target.config.file_bytes = seed, file_bytes
        with nogil:
            result = ldma_load_add_session(load, &target.config)
        return check(result)

    def resume_session(self, uint32_t session, uint32_t link):
        """Lets a session whose connection broke go on by another one, to which it is bound as well."""
        cdef ldma_load *load = self.live()
        cdef int error
        with nogil:
            error = ldma_load_resume_session(load, session, link)
        check(error)

    def renew_session(self, uint32_t session, uint32_t link, *, bytes session_id not None, sequences,
                      bytes handle not None, bytes stateid not None, bytes credential not None):
        """Lets a session whose connection broke go on as a new session, which writes its file anew. The arguments are
        those of add_session."""
        cdef ldma_load *load = self.live()
        cdef _Target target = _Target(link, session_id, sequences, handle, stateid, credential)
        cdef int error
        with nogil:
            error = ldma_load_renew_session(load, session, &target.config)
        check(error)

    def heard_ns(self):
        """Returns when the last reply to an operation came, by the monotonic clock; 0: none did."""
        cdef ldma_load *load = self.live()
        cdef uint64_t heard_ns
        with nogil:
            heard_ns = ldma_load_heard_ns(load)
        return heard_ns

    def begin(self):
        """Lets sessions begin as soon as their files are ready."""
        cdef ldma_load *load = self.live()
        with nogil:
            ldma_load_begin(load)

    def run(self):
        """Does the work until end() is called."""
        cdef ldma_load *load = self.live()
        self.runs += 1
        if self.port is not None:
            self.port.users += 1
        with nogil:
            ldma_load_run(load)
        if self.port is not None:
            self.port.users -= 1
        self.runs -= 1

    def stop(self):
        """Lets no further operation begin."""
        cdef ldma_load *load = self.live()
        with nogil:
            ldma_load_stop(load)

    def end(self):
        """Makes run() return."""
        cdef ldma_load *load = self.live()
        with nogil:
            ldma_load_end(load)

    def close(self):
        """Ends the load and frees its memory; idempotent. Queue pairs of its connections have to be closed before."""
        cdef ldma_load *load = self.c
        if load == NULL:
            return
        self.end()
        while self.runs:
            with nogil:
                usleep(1000)
        self.c = NULL
        ldma_load_destroy(load)
        self.links.clear()
        self.cq = None

    def figures(self):
        cdef ldma_load *load = self.live()
        cdef ldma_load_figures_t *c = <ldma_load_figures_t *>PyMem_Calloc(1, sizeof(ldma_load_figures_t))
        cdef Latency latency = Latency()
        if c == NULL:
            raise MemoryError
        try:
            with nogil:
                ldma_load_figures(load, c)
            latency.c = c.latency
            return Figures(
                c.now_ns, c.began_ns, c.cpu_ns, counters(&c.counters), c.sessions, c.filled, c.running,
                c.failed, c.lost, c.open, c.granted, latency,
                {(c.statuses[i].operation, c.statuses[i].status): c.statuses[i].count
                 for i in range(LDMA_LOAD_STATUSES) if c.statuses[i].count})
        finally:
            PyMem_Free(c)

    def session(self, uint32_t number):
        """Returns the figures of a session."""
        cdef ldma_load *load = self.live()
        cdef ldma_load_session_figures_t *c
        cdef Latency latency = Latency()
        cdef int error
        c = <ldma_load_session_figures_t *>PyMem_Calloc(1, sizeof(ldma_load_session_figures_t))
        if c == NULL:
            raise MemoryError
        try:
            with nogil:
                error = ldma_load_session_figures(load, number, c)
            check(error)
            latency.c = c.latency
            return SessionFigures(counters(&c.counters), latency, c.began_ns, c.gap_ns, c.pause_ns, c.moves,
                                  c.limit, c.words.decode())
        finally:
            PyMem_Free(c)

    def places(self):
        """Returns the connection of each session, by the session's number; FAILED; or LOST: its connection broke."""
        cdef ldma_load *load = self.live()
        cdef uint32_t room = 0, count = ldma_load_places(load, NULL, 0), i
        cdef int32_t *links = NULL
        try:
            while count > room:
                PyMem_Free(links)
                room = count
                links = <int32_t *>PyMem_Calloc(room, sizeof(int32_t))
                if links == NULL:
                    raise MemoryError
                with nogil:
                    count = ldma_load_places(load, links, room)
            return [links[i] for i in range(count)]
        finally:
            PyMem_Free(links)

    def call(self, uint32_t link, uint64_t user, const uint8_t[::1] message not None):
        """Sends a call of the user's own, which is not the load's, on a connection."""
        cdef ldma_load *load = self.live()
        if message.shape[0] < 8 or message.shape[0] > 0x7fffffff:
            raise ValueError("this is no RPC message")
        check(ldma_load_call(load, link, user, &message[0], <uint32_t>message.shape[0]))

    def replies(self):
        """Returns the replies that came to such calls: (user, errno or 0, message)."""
        cdef ldma_load *load = self.live()
        cdef ldma_load_reply reply
        cdef list found = []
        ldma_unsignal(ldma_load_event_fd(load))
        while ldma_load_take_reply(load, &reply):
            message = b"" if reply.message == NULL else (<const char *>reply.message)[:reply.length]
            free(reply.message)
            found.append((reply.user, -reply.error, message))
        return found

    def fileno(self):
        """Returns a descriptor that is readable when a reply came, a connection broke or the run ended."""
        return ldma_load_event_fd(self.live())

    def link_error(self, uint32_t link):
        """Returns the errno of what ended the connection; 0: it works."""
        return -ldma_load_link_error(self.live(), link)
