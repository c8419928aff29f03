# SPDX-License-Identifier: BSD-2-Clause
"""Runs the session monitor's BPF programs, and reads their tables. Contracts are in bpf/monitor_session.h."""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from dataclasses import fields
from os import strerror


cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object obj, object name, object value) except -1
    void PyObject_GC_UnTrack(object obj)

cdef extern from "bpf/monitor_tables.h" nogil:
    enum:
        LDMA_MONITOR_PORTS
        LDMA_MONITOR_CONNECTIONS
        LDMA_MONITOR_SESSIONS

    struct ldma_monitor_losses:
        uint64_t connections
        uint64_t sessions
        uint64_t calls
        uint64_t replies
        uint64_t unreadable
        uint64_t early

cdef extern from "bpf/monitor_session.h" nogil:
    enum:
        MONITOR_INTERFACES

    struct capture_error:
        char *text

    struct monitor_options:
        uint16_t *ports
        uint32_t port_count
        uint32_t connections
        uint32_t sessions
        uint64_t patience_ns
        uint64_t idle_ns
        bint learns
        bint without_links
        bint verbose

    struct monitor_times:
        uint64_t count
        uint64_t sum_ns
        uint64_t p50_ns
        uint64_t p99_ns
        uint64_t max_ns

    struct monitor_connection_row:
        uint32_t number
        uint64_t learnt_ns
        uint8_t *server
        uint8_t *client
        uint32_t ip_version
        uint32_t server_qpn
        uint32_t client_qpn
        uint32_t sessions
        uint32_t in_flight
        uint32_t credits_asked
        uint32_t credits_granted
        uint64_t read_bytes
        uint64_t written_bytes
        uint64_t rnr_naks
        uint64_t naks
        uint64_t retransmissions
        uint64_t unanswered
        monitor_times times

    struct monitor_session_row:
        uint8_t *id
        uint32_t in_flight
        uint64_t read_bytes
        uint64_t written_bytes
        uint64_t *connections
        monitor_times times

    struct monitor_view:
        const monitor_connection_row *connections
        const monitor_session_row *sessions
        uint32_t connection_count
        uint32_t session_count
        ldma_monitor_losses losses

    struct monitor:
        pass

    int monitor_open(const monitor_options *options, monitor **ret, capture_error *error)
    int monitor_attach(monitor *monitor, const uint32_t *ifindexes, uint32_t count,
                       capture_error *error)
    void monitor_detach(monitor *monitor)
    bint monitor_is_attached(const monitor *monitor)
    int monitor_mode(const monitor *monitor)
    int monitor_learn(monitor *monitor, const uint8_t *server, uint32_t server_qpn,
                      const uint8_t *client, uint32_t client_qpn, uint32_t ip_version)
    uint32_t monitor_strangers(const monitor *monitor, uint64_t recent_ns)
    void monitor_look(monitor *monitor, monitor_view *ret)
    int monitor_feed(monitor *monitor, const uint8_t *frame, uint32_t length,
                     uint32_t segment_bytes)
    void monitor_close(monitor *monitor)


PORTS_MOST = LDMA_MONITOR_PORTS
CONNECTIONS_MOST = LDMA_MONITOR_CONNECTIONS
SESSIONS_MOST = LDMA_MONITOR_SESSIONS
INTERFACES_MOST = MONITOR_INTERFACES
MODES = (None, "native XDP", "generic XDP", "tcx", "clsact")


cdef tuple times_of(const monitor_times *times):
    return times.count, times.sum_ns, times.p50_ns, times.p99_ns, times.max_ns


cdef bytes address_of(const uint8_t *address, uint32_t ip_version):
    return address[:4 if ip_version == 4 else 16]


cdef class _Maker:
    """Makes frozen dataclasses without their __init__: there are thousands, ten times a second."""

    cdef object kind
    cdef tuple names

    def __cinit__(self, kind):
        self.kind = kind
        self.names = tuple(field.name for field in fields(kind))

    cdef object make(self, tuple values):
        cdef object made = self.kind.__new__(self.kind)
        cdef Py_ssize_t i
        for i in range(len(self.names)):
            PyObject_GenericSetAttr(made, self.names[i], values[i])
        PyObject_GC_UnTrack(made)  # it is in no cycle, and looking for one takes longer than making it
        return made


cdef class MonitorSession:
    """Holds the loaded programs of a monitor, attached to some interfaces at a time.

    An OSError carries one sentence that says what is wrong and what to do.
    """

    cdef monitor *c
    cdef _Maker session_maker
    cdef _Maker times_maker
    cdef object no_times

    def __cinit__(self, *, session_type, times_type, ports, uint32_t connections, uint32_t sessions, uint64_t patience_ns,
                  uint64_t idle_ns, bint learns, bint without_links=False, bint verbose=False):
        cdef monitor_options options
        cdef capture_error error
        cdef int err
        self.session_maker = _Maker(session_type)
        self.times_maker = _Maker(times_type)
        self.no_times = times_type()
        memset(&options, 0, sizeof(options))
        if len(ports) > LDMA_MONITOR_PORTS:
            raise ValueError(f"{LDMA_MONITOR_PORTS} ports can be watched at most")
        for i, port in enumerate(ports):
            options.ports[i] = port
        options.port_count = len(ports)
        options.connections = connections
        options.sessions = sessions
        options.patience_ns = patience_ns
        options.idle_ns = idle_ns
        options.learns = learns
        options.without_links = without_links
        options.verbose = verbose
        with nogil:
            err = monitor_open(&options, &self.c, &error)
        if err:
            raise OSError(-err, error.text.decode())

    def __dealloc__(self):
        monitor_close(self.c)

    cdef monitor *open(self) except NULL:
        if self.c == NULL:
            raise ValueError("the monitor is closed")
        return self.c

    def close(self):
        """Detaches and frees everything. Calling it again has no effect."""
        monitor_close(self.c)
        self.c = NULL

    def attach(self, ifindexes):
        """Attaches to these interfaces, and detaches from all others."""
        cdef uint32_t indexes[MONITOR_INTERFACES]
        cdef uint32_t count = len(ifindexes)
        cdef monitor *c = self.open()
        cdef capture_error error
        cdef int err
        if count > MONITOR_INTERFACES:
            raise ValueError(f"{MONITOR_INTERFACES} interfaces can be monitored at most")
        for i, ifindex in enumerate(ifindexes):
            indexes[i] = ifindex
        with nogil:
            err = monitor_attach(c, indexes, count, &error)
        if err:
            raise OSError(-err, error.text.decode())

    def detach(self):
        monitor_detach(self.open())

    @property
    def is_attached(self):
        return monitor_is_attached(self.open())

    @property
    def mode(self):
        return MODES[monitor_mode(self.open())]

    def learn(self, bytes server not None, uint32_t server_qpn, bytes client not None,
              uint32_t client_qpn):
        """Adds a connection, by packed addresses. Raises FileExistsError if it is known."""
        cdef uint32_t version = 4 if len(server) == 4 else 6
        if len(server) != len(client) or len(server) not in (4, 16):
            raise ValueError("addresses have 4 or 16 bytes each")
        cdef bytes server_bytes = server.ljust(16, b"\0")
        cdef bytes client_bytes = client.ljust(16, b"\0")
        cdef int err = monitor_learn(self.open(), server_bytes, server_qpn, client_bytes,
                                     client_qpn, version)
        if err:
            raise OSError(-err, strerror(-err))

    def look(self):
        """Returns (connections, sessions, losses) with the counts since the last look: sessions are
        of `session_type`, the others are tuples as in the stub.
        """
        cdef monitor *c = self.open()
        cdef monitor_view view
        with nogil:
            monitor_look(c, &view)
        cdef list connections = []
        cdef list sessions = []
        cdef const monitor_connection_row *one
        cdef const monitor_session_row *session
        cdef uint64_t bits
        cdef uint32_t i, word
        for i in range(view.connection_count):
            one = &view.connections[i]
            connections.append((
                one.number, address_of(one.server, one.ip_version), one.server_qpn,
                address_of(one.client, one.ip_version), one.client_qpn, one.sessions,
                one.read_bytes, one.written_bytes, times_of(&one.times), one.in_flight,
                one.credits_asked, one.credits_granted, one.rnr_naks, one.naks,
                one.retransmissions, one.unanswered, one.learnt_ns,
            ))
        cdef dict named = {}
        for i in range(view.session_count):
            session = &view.sessions[i]
            used = []
            for word in range(LDMA_MONITOR_CONNECTIONS // 64):
                bits = session.connections[word]
                if bits == 0:
                    continue
                key = (word, bits)
                if key not in named:
                    named[key] = tuple(view.connections[word * 64 + bit].number
                                       for bit in range(64) if bits >> bit & 1)
                used.append(named[key])
            sessions.append(self.session_maker.make((
                session.id[:16].hex(), used[0] if len(used) == 1 else sum(used, ()),
                session.times.count, session.read_bytes, session.written_bytes,
                self.times_maker.make(times_of(&session.times)) if session.times.count
                else self.no_times,
                session.in_flight, None,
            )))
        return connections, sessions, (view.losses.connections, view.losses.sessions,
                                       view.losses.calls, view.losses.replies,
                                       view.losses.unreadable, view.losses.early)

    def strangers(self, uint64_t recent_ns):
        """Returns how many connections seem to be there that are not known yet."""
        return monitor_strangers(self.open(), recent_ns)

    def feed(self, const uint8_t[::1] frame, uint32_t segment_bytes=0):
        """Shows a frame to the programs as if it passed lo; segment_bytes: as a train of packets of this size."""
        cdef int err = monitor_feed(self.open(), &frame[0], len(frame), segment_bytes)
        if err:
            raise OSError(-err, strerror(-err))
