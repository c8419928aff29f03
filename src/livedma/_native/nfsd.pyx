# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's NFS server from inside, by BPF. Contracts are in bpf/nfsd_session.h."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from typing import NamedTuple


cdef extern from "bpf/nfsd_tables.h" nogil:
    enum:
        LDMA_NFSD_RDMA
        LDMA_MONITOR_CONNECTIONS

    struct ldma_nfsd_losses:
        uint64_t connections
        uint64_t sessions
        uint64_t calls
        uint64_t early

cdef extern from "bpf/nfsd_session.h" nogil:
    struct capture_error:
        char *text

    struct monitor_times:
        uint64_t count
        uint64_t sum_ns
        uint64_t p50_ns
        uint64_t p99_ns
        uint64_t max_ns

    struct nfsd_options:
        uint32_t connections
        uint32_t sessions
        uint64_t idle_ns
        bint verbose

    struct nfsd_missing_part "nfsd_missing":
        const char *part
        const char *target
        const char *module

    struct nfsd_connection_row:
        uint32_t number
        int kind
        uint32_t ip_version
        uint8_t *server
        uint8_t *client
        uint16_t client_port
        uint32_t server_qpn
        uint32_t sessions
        uint32_t in_flight
        uint32_t executing
        uint32_t credits_asked
        uint32_t credits_granted
        uint64_t read_bytes
        uint64_t written_bytes
        uint64_t serving_ns
        uint64_t last_credits
        uint64_t contexts_made
        uint64_t receives_failed
        monitor_times calls
        monitor_times thread_waits
        monitor_times fetches
        monitor_times storage
        monitor_times send_waits

    struct nfsd_session_row:
        uint8_t *id
        uint32_t in_flight
        uint64_t read_bytes
        uint64_t written_bytes
        uint64_t *connections
        monitor_times times

    struct nfsd_view:
        const nfsd_connection_row *connections
        const nfsd_session_row *sessions
        uint32_t connection_count
        uint32_t session_count
        uint32_t threads
        ldma_nfsd_losses losses

    struct nfsd_session:
        pass

    int nfsd_open(const nfsd_options *options, nfsd_session **ret, capture_error *error)
    uint32_t nfsd_missing(const nfsd_session *session, nfsd_missing_part *ret, uint32_t most)
    void nfsd_look(nfsd_session *session, nfsd_view *ret)
    void nfsd_close(nfsd_session *session)


CONNECTIONS_MOST = LDMA_MONITOR_CONNECTIONS

cdef enum:
    MISSING_MOST = 32


class ConnectionRow(NamedTuple):
    """Holds a struct nfsd_connection_row. Times are (count, sum, p50, p99, longest), in ns."""

    number: int
    is_rdma: bool
    server: bytes
    client: bytes
    client_port: int
    server_qpn: int
    sessions: int
    in_flight: int
    executing: int
    credits_asked: int
    credits_granted: int
    read_bytes: int
    written_bytes: int
    serving_ns: int
    last_credits: int
    contexts_made: int
    receives_failed: int
    calls: tuple
    thread_waits: tuple
    fetches: tuple
    storage: tuple
    send_waits: tuple


class SessionRow(NamedTuple):
    """Holds a struct nfsd_session_row, with the numbers of its connections."""

    id: str
    connections: tuple
    in_flight: int
    read_bytes: int
    written_bytes: int
    times: tuple


cdef tuple times_of(const monitor_times *times):
    return times.count, times.sum_ns, times.p50_ns, times.p99_ns, times.max_ns


cdef bytes address_of(const uint8_t *address, uint32_t ip_version):
    return address[:4 if ip_version == 4 else 16]


cdef object connection_row(const nfsd_connection_row *one):
    return ConnectionRow(
        one.number, one.kind == LDMA_NFSD_RDMA, address_of(one.server, one.ip_version),
        address_of(one.client, one.ip_version), one.client_port, one.server_qpn, one.sessions,
        one.in_flight, one.executing, one.credits_asked, one.credits_granted, one.read_bytes,
        one.written_bytes, one.serving_ns, one.last_credits, one.contexts_made,
        one.receives_failed, times_of(&one.calls), times_of(&one.thread_waits),
        times_of(&one.fetches), times_of(&one.storage), times_of(&one.send_waits),
    )


cdef tuple numbers_of(const nfsd_session_row *session, const nfsd_view *view):
    cdef uint32_t place
    return tuple(view.connections[place].number for place in range(view.connection_count)
                 if session.connections[place // 64] >> (place % 64) & 1)


cdef class NfsdSession:
    """Runs the programs, loaded and attached from the moment it is made until it is closed.

    An OSError carries one sentence that says what is wrong and what to do.
    """

    cdef nfsd_session *c

    def __cinit__(self, *, uint32_t connections, uint32_t sessions, uint64_t idle_ns,
                  bint verbose=False):
        cdef nfsd_options options
        cdef capture_error error
        cdef int err
        memset(&options, 0, sizeof(options))
        options.connections = connections
        options.sessions = sessions
        options.idle_ns = idle_ns
        options.verbose = verbose
        with nogil:
            err = nfsd_open(&options, &self.c, &error)
        if err:
            raise OSError(-err, error.text.decode())

    def __dealloc__(self):
        nfsd_close(self.c)

    cdef nfsd_session *open(self) except NULL:
        if self.c == NULL:
            raise ValueError("the session is closed")
        return self.c

    def close(self):
        """Detaches and frees everything. Calling it again has no effect."""
        nfsd_close(self.c)
        self.c = NULL

    def missing(self):
        """Returns (part, target, module) of what this kernel lacks: the part is not seen."""
        cdef nfsd_missing_part found[MISSING_MOST]
        cdef uint32_t count = nfsd_missing(self.open(), found, MISSING_MOST)
        return [(found[i].part.decode(), found[i].target.decode(), found[i].module.decode())
                for i in range(min(count, MISSING_MOST))]

    def look(self):
        """Returns (connections, sessions, threads, losses) with the counts since the last look."""
        cdef nfsd_session *c = self.open()
        cdef nfsd_view view
        cdef const nfsd_session_row *one
        cdef uint32_t i
        with nogil:
            nfsd_look(c, &view)
        connections = [connection_row(&view.connections[i]) for i in range(view.connection_count)]
        sessions = []
        for i in range(view.session_count):
            one = &view.sessions[i]
            sessions.append(SessionRow(one.id[:16].hex(), numbers_of(one, &view), one.in_flight,
                                       one.read_bytes, one.written_bytes, times_of(&one.times)))
        return connections, sessions, view.threads, (view.losses.connections, view.losses.sessions,
                                                     view.losses.calls, view.losses.early)
