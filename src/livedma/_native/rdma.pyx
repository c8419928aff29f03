# SPDX-License-Identifier: BSD-2-Clause
"""Runs the device's protocol core without a wire: engines take and give packets as bytes, at times that the caller
sets."""
import os
import weakref
from ipaddress import ip_address

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from libc.errno cimport EBUSY, EEXIST
from libc.string cimport memcpy, memset

from livedma._native.packet cimport (
    LDMA_LINK_IPV4, LDMA_LINK_IPV6, ldma_packet, ldma_packet_decode,
)
from livedma._native.rdma cimport *

TYPES = {"GSI": 1, "RC": 2, "UC": 3, "UD": 4}
STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
OPERATIONS = {
    "WRITE": 0, "WRITE_WITH_IMM": 1, "SEND": 2, "SEND_WITH_IMM": 3, "READ": 4,
    "COMPARE_SWAP": 5, "FETCH_ADD": 6, "SEND_WITH_INV": 9,
}
COMPLETED = {
    0: "SEND", 1: "WRITE", 2: "READ", 3: "COMPARE_SWAP", 4: "FETCH_ADD", 128: "RECV",
    129: "RECV_WRITE_WITH_IMM",
}
STATUSES = {
    ldma_statuses[i].value: ldma_statuses[i].name.decode() for i in range(LDMA_STATUS_COUNT)
}
EVENTS = {
    ldma_event_types[i].value: ldma_event_types[i].name.decode()
    for i in range(LDMA_EVENT_TYPE_COUNT)
}
# Attributes that QueuePair.modify may take; numbers of ibv_qp_attr_mask.
ATTRIBUTES = {
    "access": 1 << 3, "pkey": 1 << 4, "qkey": 1 << 6, "path": 1 << 7, "mtu": 1 << 8,
    "timeout": 1 << 9, "retry_count": 1 << 10, "rnr_retry": 1 << 11, "rq_psn": 1 << 12,
    "max_rd_atomic": 1 << 13, "min_rnr_timer": 1 << 15, "sq_psn": 1 << 16,
    "max_dest_rd_atomic": 1 << 17, "dest_qp": 1 << 20,
}
cdef dict FLAGS = {"fence": 1, "signaled": 2, "solicited": 4}
cdef dict RIGHTS = {
    "local_write": 1, "remote_write": 2, "remote_read": 4, "remote_atomic": 8,
    "remote_invalidate": 1 << 16,
}


cdef int check(int result) except -1:
    """Turns a negative result, which is the caller's mistake or the system's failure, into an exception."""
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


cdef uint32_t rights(access) except? 0xffffffff:
    cdef uint32_t mask = 0
    for name in access:
        mask |= RIGHTS[name]
    return mask


cdef uint32_t random_key() except 0:
    """Returns a key that no peer can guess; never 0, which means no key."""
    return int.from_bytes(os.urandom(4), "little") or 1


cdef dict counters(const ldma_counters *c):
    cdef const char *base = <const char *>c
    return {
        ldma_counter_names[i].name.decode(): (<const uint64_t *>(base + ldma_counter_names[i].offset))[0]
        for i in range(LDMA_COUNTER_COUNT)
    }


cdef int fill_path(ldma_path *path, src, dst, uint16_t sport) except -1:
    cdef bytes a = ip_address(src).packed, b = ip_address(dst).packed
    if len(a) != len(b):
        raise ValueError("src and dst must both be IPv4 or both be IPv6")
    memset(path, 0, sizeof(path[0]))
    path.ip_version = 4 if len(a) == 4 else 6
    path.ttl = 64
    path.sport = sport
    memcpy(path.src, PyBytes_AsString(a), len(a))
    memcpy(path.dst, PyBytes_AsString(b), len(b))
    return 0


cdef class Completion:
    """Says what became of a request. status and operation are names."""

    cdef readonly uint64_t wr_id
    cdef readonly str status, operation
    cdef readonly uint32_t length, qp, src_qp
    cdef readonly object imm, invalidated
    cdef readonly bint solicited

    def __repr__(self):
        return f"<{self.operation} {self.wr_id}: {self.status}, {self.length} bytes>"


cdef class ProtectionDomain:
    """Joins queue pairs, regions and shared receive queues that may be used together."""

    def __cinit__(self, *_, **__):
        self.c = ldma_pd_create()
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        ldma_pd_destroy(self.c)

    cdef ldma_pd *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the protection domain is closed")
        return self.c

    def close(self):
        """Frees the domain. All that uses it has to be closed before."""
        if self.c != NULL:
            check(ldma_pd_destroy(self.c))
            self.c = NULL


@cython.no_gc_clear  # what it holds must outlive it
cdef class CompletionQueue:
    """Collects completions in a ring. The ring of an engine on a wire serves only that engine's queue pairs."""

    def __init__(self, uint32_t capacity=1024, Engine engine=None):
        if self.c != NULL:
            raise ValueError("the queue is there already")
        self.c = ldma_cq_create(capacity, NULL) if engine is None else engine.make_cq(capacity)
        if self.c == NULL:
            raise MemoryError
        self.engine = engine
        if engine is not None:
            engine.queues[<size_t>self.c] = self

    def __dealloc__(self):
        self.destroy()

    cdef ldma_cq *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the completion queue is closed")
        return self.c

    cdef int destroy(self) except -1:
        cdef int result
        if self.c == NULL:
            return 0
        if self.engine is not None:
            self.engine.acquire()
            if not self.c.users and not self.waiting:
                ldma_device_forget_events(self.engine.c, self.c)
        result = -EBUSY if self.waiting else ldma_cq_destroy(self.c)
        if self.engine is not None:
            self.engine.release()
        check(result)
        self.c = NULL
        return 0

    def close(self):
        """Frees the queue. Queue pairs that complete here have to be closed before, and no thread may wait."""
        self.destroy()

    @property
    def lost(self):
        """Counts how many completions found the queue full."""
        return self.live().lost

    def poll(self, uint32_t count=64):
        """Takes up to count completions, in their order."""
        cdef ldma_cq *c = self.live()
        cdef ldma_wc wc
        cdef Completion one
        cdef list found = []
        while len(found) < count and ldma_cq_poll(c, &wc, 1):
            one = Completion.__new__(Completion)
            one.wr_id, one.length, one.qp, one.src_qp = wc.wr_id, wc.byte_length, wc.qp_num, wc.src_qp
            one.status, one.operation = STATUSES[wc.status], COMPLETED[wc.opcode]
            one.solicited = wc.is_solicited
            one.imm = wc.imm if wc.flags & 2 else None
            one.invalidated = wc.imm if wc.flags & 8 else None
            found.append(one)
        return found

    def arm(self, bint solicited_only=False):
        """Asks for one event at the next completion, or the next that is solicited or failed."""
        cdef ldma_cq *c = self.live()
        if self.engine is not None:
            self.engine.acquire()
        ldma_cq_arm(c, 1 if solicited_only else 2)
        if self.engine is not None:
            self.engine.release()

    def take_event(self):
        return bool(ldma_cq_take_event(self.live()))


@cython.no_gc_clear
cdef class Region:
    """Lets the engine and, as far as access says, peers use a buffer. The region holds it until closed."""

    def __init__(self, Engine engine not None, buffer, access=(), *, va=None,
                 ProtectionDomain pd=None, uint32_t key=0):
        """Registers a writable buffer. va: by default the buffer's address. pd: by default the engine's own domain.
        key: chosen at random if 0."""
        cdef ProtectionDomain domain = engine.domain if pd is None else pd
        cdef ldma_pd *c = domain.live()
        cdef uint32_t tried = key
        cdef int result = -EEXIST
        cdef uint32_t mask = rights(access)
        if self.engine is not None:
            raise ValueError("the region has its memory already")
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        self.va = <uint64_t>self.view.buf if va is None else va
        self.length = self.view.len
        while result == -EEXIST:
            if not key:
                tried = random_key()
            engine.acquire()
            result = ldma_iova_register(ldma_device_iova(engine.c), c, self.view.buf, self.va,
                                        self.length, mask, tried)
            engine.release()
            if key:
                break
        if result < 0:
            PyBuffer_Release(&self.view)
            check(result)
        self.key = tried
        self.engine, self.domain = engine, domain
        engine.children.add(self)

    def __dealloc__(self):
        self.destroy()

    cdef int destroy(self) except -1:
        if self.engine is None:
            return 0
        self.engine.acquire()
        ldma_iova_deregister(ldma_device_iova(self.engine.c), self.key)
        self.engine.release()
        PyBuffer_Release(&self.view)
        self.engine = None
        return 0

    def close(self):
        """Takes the right away: a use of the key gets an error from now on."""
        self.destroy()


@cython.no_gc_clear
cdef class SharedReceives:
    """Holds Receives that several queue pairs share."""

    def __cinit__(self, ProtectionDomain pd not None, uint32_t depth=128, uint32_t max_sge=4, *,
                  Engine engine=None):
        self.engine, self.domain = engine, pd
        check(ldma_rq_init(&self.c, pd.live(), depth, max_sge))

    def __dealloc__(self):
        ldma_rq_destroy(&self.c)

    def post_recv(self, uint64_t wr_id, sges=()):
        cdef ReceiveRequest request = ReceiveRequest(wr_id, sges)
        cdef int result
        if self.engine is not None:
            self.engine.acquire()
        result = ldma_rq_post(&self.c, &request.wr)
        if self.engine is not None:
            self.engine.release()
        check(result)

    def set_limit(self, uint32_t limit):
        """Asks for one event when fewer than limit Receives are left."""
        if self.engine is not None:
            self.engine.acquire()
        ldma_rq_set_limit(&self.c, limit)
        if self.engine is not None:
            self.engine.release()


cdef uint32_t fill_sges(ldma_sge *sge, sges) except? 0xffffffff:
    cdef uint32_t n = 0
    if len(sges) > LDMA_MAX_SGE:
        raise ValueError(f"at most {LDMA_MAX_SGE} pieces")
    for key, va, length in sges:
        sge[n].lkey, sge[n].va, sge[n].length = key, va, length
        n += 1
    return n


cdef class ReceiveRequest:
    cdef ldma_recv_wr wr
    cdef ldma_sge sge[16]

    def __cinit__(self, uint64_t wr_id, sges):
        self.wr.wr_id, self.wr.sge, self.wr.sge_count = wr_id, self.sge, fill_sges(self.sge, sges)


cdef class WorkRequest:
    """Describes a send request for post_sends; it may be posted many times."""

    cdef ldma_send_wr wr
    cdef ldma_sge sge[16]
    cdef ldma_path path
    cdef bytes inline
    cdef object src, dst, sport

    def __init__(self, uint64_t wr_id, operation, sges=(), *, bytes inline=None,
                 flags=("signaled",), uint32_t imm=0, uint64_t remote_va=0, uint32_t rkey=0,
                 uint64_t compare=0, uint64_t swap_add=0, src=None, dst=None, sport=None,
                 uint32_t remote_qp=0, uint32_t remote_qkey=0):
        """Describes a request. imm: the immediate data, or the key to invalidate. src to remote_qkey: for datagrams."""
        memset(&self.wr, 0, sizeof(self.wr))
        self.wr.wr_id, self.wr.opcode = wr_id, OPERATIONS[operation]
        self.wr.sge, self.wr.sge_count = self.sge, fill_sges(self.sge, sges)
        for flag in flags:
            self.wr.flags |= <uint8_t>FLAGS[flag]
        if inline is not None:
            self.inline = inline
            self.wr.flags |= 8
            self.wr.inline_data = PyBytes_AsString(inline)
            self.wr.inline_length = PyBytes_Size(inline)
        self.wr.imm, self.wr.remote_va, self.wr.rkey = imm, remote_va, rkey
        self.wr.compare, self.wr.swap_add = compare, swap_add
        self.src, self.dst, self.sport = src, dst, sport
        self.wr.remote_qp, self.wr.remote_qkey = remote_qp, remote_qkey

    cdef int address(self, Engine engine) except -1:
        """Fills in a datagram's path. Its source address and port are the engine's own unless given."""
        if self.dst is not None:
            fill_path(&self.path, engine.source if self.src is None else self.src, self.dst,
                      engine.sport if self.sport is None else self.sport)
            self.wr.path = &self.path
        return 0


@cython.no_gc_clear
cdef class QueuePair:
    """Represents one end of a connection, or of datagrams. A piece of memory (sge) is (key, va, length)."""

    def __init__(self, Engine engine not None, type, CompletionQueue send_cq not None,
                 CompletionQueue recv_cq not None, *, ProtectionDomain pd=None,
                 SharedReceives srq=None, bint signals_all=False, uint32_t max_send=64, uint32_t max_recv=64,
                 uint32_t max_send_sge=4, uint32_t max_recv_sge=4, uint32_t max_inline=64):
        cdef ProtectionDomain domain = engine.domain if pd is None else pd
        cdef ldma_qp_init init
        cdef int result
        if self.c != NULL:
            raise ValueError("the queue pair is there already")
        init.type, init.signals_all, init.pd = TYPES[type], signals_all, domain.live()
        init.send_cq, init.recv_cq = send_cq.live(), recv_cq.live()
        init.srq = NULL if srq is None else &srq.c
        init.max_send, init.max_recv, init.max_inline = max_send, max_recv, max_inline
        init.max_send_sge, init.max_recv_sge = max_send_sge, max_recv_sge
        engine.acquire()
        result = ldma_device_create_qp(engine.c, &init, &self.c)
        engine.release()
        check(result)
        self.engine, self.domain = engine, domain
        self.send_cq, self.recv_cq, self.srq = send_cq, recv_cq, srq
        engine.children.add(self)

    def __dealloc__(self):
        self.destroy()

    cdef ldma_qp *live(self) except NULL:
        if self.c == NULL:
            raise ValueError("the queue pair is closed")
        return self.c

    cdef int destroy(self) except -1:
        if self.c == NULL:
            return 0
        self.engine.acquire()
        ldma_device_destroy_qp(self.c)
        self.engine.release()
        self.c = NULL
        return 0

    def close(self):
        self.destroy()

    @property
    def number(self):
        return self.live().number

    @property
    def state(self):
        return STATES[self.live().state]

    @property
    def drained(self):
        return bool(ldma_qp_is_drained(self.live()))

    @property
    def window(self):
        """Counts the PSNs that may be in flight now."""
        return ldma_qp_window(self.live())

    @property
    def counters(self):
        cdef ldma_qp *c = self.live()
        self.engine.acquire()
        try:
            return counters(ldma_qp_counters(c))
        finally:
            self.engine.release()

    def modify(self, state, *, access=(), uint32_t qkey=0, uint16_t pkey=0xffff, uint32_t mtu=1024,
               src=None, dst=None, sport=None, uint8_t tos=0, uint32_t dest_qp=0,
               uint32_t rq_psn=0, uint32_t sq_psn=0, uint8_t max_dest_rd_atomic=4,
               uint8_t max_rd_atomic=4, uint8_t min_rnr_timer=12, uint8_t timeout=14,
               uint8_t retry_count=7, uint8_t rnr_retry=7, optional=()):
        """Moves it to another state. device/qp.h says which arguments count; optional names more of them (ATTRIBUTES).
        dst is the peer, by default the device itself."""
        cdef ldma_qp_attr attr
        cdef ldma_qp *c = self.live()
        cdef int result
        cdef ldma_qp_state to = <ldma_qp_state><int>STATES.index(state)
        memset(&attr, 0, sizeof(attr))
        for name in optional:
            attr.optional |= <uint32_t>ATTRIBUTES[name]
        attr.access, attr.qkey, attr.pkey, attr.mtu = rights(access), qkey, pkey, mtu
        fill_path(&attr.path, src or self.engine.source, dst or self.engine.source,
                  self.engine.sport if sport is None else sport)
        attr.path.tos = tos
        attr.dest_qp, attr.rq_psn, attr.sq_psn = dest_qp, rq_psn, sq_psn
        attr.max_dest_rd_atomic, attr.max_rd_atomic = max_dest_rd_atomic, max_rd_atomic
        attr.min_rnr_timer, attr.timeout = min_rnr_timer, timeout
        attr.retry_count, attr.rnr_retry = retry_count, rnr_retry
        self.engine.acquire()
        result = ldma_qp_modify(c, to, &attr)
        self.engine.release()
        check(result)

    def post_recv(self, uint64_t wr_id, sges=()):
        self.post_recvs(((wr_id, sges),))

    def post_recvs(self, requests):
        """Posts many (wr_id, sges) at once. Those before one that fails are posted."""
        cdef list made = [ReceiveRequest(wr_id, sges) for wr_id, sges in requests]
        cdef ReceiveRequest request
        cdef ldma_qp *c = self.live()
        cdef int result = 0
        self.engine.acquire()
        for request in made:
            result = ldma_qp_post_recv(c, &request.wr)
            if result < 0:
                break
        self.engine.release()
        check(result)

    def post_send(self, uint64_t wr_id, operation, sges=(), *, bytes inline=None,
                  flags=("signaled",), uint32_t imm=0, uint64_t remote_va=0, uint32_t rkey=0,
                  uint64_t compare=0, uint64_t swap_add=0, src=None, dst=None,
                  sport=None, uint32_t remote_qp=0, uint32_t remote_qkey=0):
        """Posts one request. imm: the immediate data, or the key to invalidate. src to remote_qkey: for datagrams."""
        self.post_sends((WorkRequest(
            wr_id, operation, sges, inline=inline, flags=flags, imm=imm, remote_va=remote_va,
            rkey=rkey, compare=compare, swap_add=swap_add, src=src, dst=dst, sport=sport,
            remote_qp=remote_qp, remote_qkey=remote_qkey),))

    def post_sends(self, requests):
        """Posts many requests at once; they share trains. Those before one that fails are posted."""
        cdef list made = list(requests)
        cdef WorkRequest request
        cdef ldma_qp *c = self.live()
        cdef int result = 0
        for request in made:
            request.address(self.engine)
        self.engine.acquire()
        for request in made:
            result = ldma_qp_post_send(c, &request.wr)
            if result < 0:
                break
        self.engine.release()
        check(result)


@cython.no_gc_clear
cdef class Engine:
    """Runs a device. It owns no wire and no clock: packets and now_ns go in, packets and the next timer come out."""

    def __cinit__(self, *_, **__):
        self.source, self.sport = "10.0.0.1", 49152
        self.domain = ProtectionDomain()
        self.children, self.queues = weakref.WeakSet(), weakref.WeakValueDictionary()

    def __init__(self, uint32_t max_qp=64, uint32_t max_region=256, uint32_t window_packets=0,
                 uint32_t read_packets=0, uint32_t burst_packets=0, uint32_t first_qp=0,
                 uint32_t last_qp=0, uint32_t next_qp=0, uint64_t iova_space=0):
        cdef ldma_device_config config
        config.max_qp, config.max_region = max_qp, max_region
        config.window_packets, config.read_packets = window_packets, read_packets
        config.burst_packets = burst_packets
        config.first_qp, config.last_qp, config.next_qp = first_qp, last_qp, next_qp
        config.iova_space = iova_space
        self.c = ldma_device_create(&config)
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        ldma_device_destroy(self.c)

    cdef int acquire(self) except -1:
        """Gives the caller the device alone, until release. Without a wire one thread uses it: this does nothing."""
        return 0

    cdef void release(self) noexcept:
        pass

    cdef ldma_cq *make_cq(self, uint32_t capacity) except? NULL:
        return ldma_cq_create(capacity, NULL)

    cdef int close_children(self) except -1:
        """Closes all that was made on it: queue pairs first, as they use the others."""
        for child in sorted(self.children, key=lambda child: not isinstance(child, QueuePair)):
            child.close()
        for queue in list(self.queues.values()):
            queue.close()
        return 0

    @property
    def counters(self):
        self.acquire()
        try:
            return counters(ldma_device_counters(self.c))
        finally:
            self.release()

    @property
    def translations(self):
        """Counts hits and misses of the translation cache, through which windows are used."""
        self.acquire()
        try:
            return ldma_device_iova(self.c).hits, ldma_device_iova(self.c).misses
        finally:
            self.release()

    @property
    def next_timer(self):
        """Is the time to call `transmit` even if nothing else happens; None: not at all."""
        cdef uint64_t at = ldma_device_next_timer(self.c)
        return None if at == LDMA_NEVER else at

    def poll_events(self):
        """Returns (type, number of the queue pair) of all events since the last call."""
        cdef ldma_event event
        cdef list found = []
        self.acquire()
        while ldma_device_poll_event(self.c, &event):
            found.append((EVENTS[event.type], event.qp_num))
        self.release()
        return found

    def register(self, buffer, access=(), *, va=None, ProtectionDomain pd=None, uint32_t key=0):
        return Region(self, buffer, access, va=va, pd=pd, key=key)

    def create_qp(self, type, CompletionQueue send_cq not None, CompletionQueue recv_cq not None,
                  **init):
        return QueuePair(self, type, send_cq, recv_cq, **init)

    def receive(self, bytes packet not None, uint64_t now_ns):
        """Takes one packet, from its IP header on. Returns False if it is no RoCE at all."""
        cdef ldma_packet decoded
        cdef uint32_t size = <uint32_t>len(packet)
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AsString(packet)
        cdef uint32_t link = LDMA_LINK_IPV6 if size and p[0] >> 4 == 6 else LDMA_LINK_IPV4
        if not ldma_packet_decode(link, p, size, size, &decoded):
            return False
        ldma_device_receive(self.c, &decoded, now_ns)
        return True

    def transmit(self, uint64_t now_ns, uint32_t count=1):
        """Returns up to count packets that are to be sent now."""
        cdef uint8_t buf[4192]
        cdef size_t n
        cdef list packets = []
        ldma_device_flush_acks(self.c)
        while len(packets) < count:
            n = ldma_device_transmit(self.c, buf, now_ns, NULL)
            if not n:
                break
            packets.append((<char *>buf)[:n])
        return packets
