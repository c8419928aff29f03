# SPDX-License-Identifier: BSD-2-Clause
"""Shares an address: it has the address's maps and this process's slot. Contracts are in bpf/share_session.h."""
from os import strerror

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport uint32_t
from libc.string cimport memcpy

cdef extern from "port/share.h":
    struct ldma_share:
        void *session
        int (*join)(void *session, int socket_fd, int *ret_filter) noexcept

cdef extern from "bpf/share_session.h":
    struct share_session:
        pass
    const char *LDMA_SHARE_SOCKETS
    int share_open(const char *directory, uint32_t address, uint32_t interface, share_session **ret)
    int share_start(const char *directory, uint32_t address, uint32_t interface, share_session **ret)
    void share_close(share_session *session)
    int share_join(void *session, int socket_fd, int *ret_filter) noexcept
    int share_claim(share_session *session, uint32_t service)
    int share_release(share_session *session, uint32_t service)
    void share_leave(share_session *session)
    uint32_t share_count(const share_session *session)

PIN = LDMA_SHARE_SOCKETS.decode()


cdef int check(int result) except -1:
    if result < 0:
        raise OSError(-result, strerror(-result))
    return 0


cdef class ShareSession:
    """Holds the maps of one address. A port that is given the session joins the address with it."""

    cdef share_session *c
    cdef ldma_share share

    def __init__(self):
        raise TypeError("use ShareSession.open() or ShareSession.start()")

    @staticmethod
    def open(str directory not None, bytes address not None=b"", uint32_t interface=0):
        """Opens the maps pinned in the directory; address (IPv4) and interface are for a packet port."""
        cdef ShareSession self = ShareSession.__new__(ShareSession)
        check(share_open(directory.encode(), word(address), interface, &self.c))
        return self

    @staticmethod
    def start(str directory not None, bytes address not None=b"", uint32_t interface=0):
        """Makes new maps, pinned in the directory."""
        cdef ShareSession self = ShareSession.__new__(ShareSession)
        check(share_start(directory.encode(), word(address), interface, &self.c))
        return self

    def __dealloc__(self):
        share_close(self.c)

    cdef share_session *session(self) except NULL:
        if self.c == NULL:
            raise ValueError("the session is closed")
        return self.c

    def capsule(self):
        """Returns a struct ldma_share, for a port of another extension; valid as long as the session."""
        self.share.session = self.session()
        self.share.join = share_join
        return PyCapsule_New(&self.share, "ldma_share", NULL)

    def close(self):
        share_close(self.c)
        self.c = NULL

    def claim(self, uint32_t service):
        check(share_claim(self.session(), service))

    def release(self, uint32_t service):
        check(share_release(self.session(), service))

    def leave(self):
        """Gives slot and claims back; returns how many other processes have a slot."""
        share_leave(self.session())
        return share_count(self.c)

    @property
    def count(self):
        """Counts the processes that have a slot."""
        return share_count(self.session())


cdef uint32_t word(bytes address):
    cdef uint32_t value = 0
    if len(address) == sizeof(value):
        memcpy(&value, <const char *>address, sizeof(value))
    return value
