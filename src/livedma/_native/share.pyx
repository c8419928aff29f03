"""Sharing an address: its maps and this process's slot. Contracts are in bpf/share_session.h."""
from os import strerror

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memcpy

cdef extern from "share_session.h":
    const char *LDMA_SHARE_SOCKETS
    int share_open(const char *directory, uint32_t address, uint32_t interface, share_session **ret)
    int share_start(const char *directory, uint32_t address, uint32_t interface, share_session **ret)
    void share_close(share_session *session)
    int share_join(void *session, int socket_fd, int *ret_filter) noexcept
    int share_claim(share_session *session, uint16_t port)
    int share_release(share_session *session, uint16_t port)
    void share_leave(share_session *session)
    uint32_t share_count(const share_session *session)

PIN = LDMA_SHARE_SOCKETS.decode()


cdef int check(int result) except -1:
    if result < 0:
        raise OSError(-result, strerror(-result))
    return 0


cdef class ShareSession:
    """The maps of one address. A port that is given it joins by it."""

    def __init__(self):
        raise TypeError("use ShareSession.open() or ShareSession.start()")

    @staticmethod
    def open(str directory not None, bytes address not None=b"", uint32_t interface=0):
        """What is pinned in the directory; address (IPv4) and interface are for a packet port."""
        cdef ShareSession self = ShareSession.__new__(ShareSession)
        check(share_open(directory.encode(), word(address), interface, &self.c))
        return self

    @staticmethod
    def start(str directory not None, bytes address not None=b"", uint32_t interface=0):
        """New maps, pinned in the directory."""
        cdef ShareSession self = ShareSession.__new__(ShareSession)
        check(share_start(directory.encode(), word(address), interface, &self.c))
        return self

    def __cinit__(self):
        self.join = share_join

    def __dealloc__(self):
        share_close(self.c)

    cdef void *session(self) except NULL:
        if self.c == NULL:
            raise ValueError("the session is closed")
        return self.c

    def close(self):
        share_close(self.c)
        self.c = NULL

    def claim(self, uint16_t port):
        check(share_claim(<share_session *>self.session(), port))

    def release(self, uint16_t port):
        check(share_release(<share_session *>self.session(), port))

    def leave(self):
        """Gives slot and claims back; how many others have one."""
        share_leave(<share_session *>self.session())
        return share_count(self.c)

    @property
    def count(self):
        """How many have a slot."""
        return share_count(<const share_session *>self.session())


cdef uint32_t word(bytes address):
    cdef uint32_t value = 0
    if len(address) == sizeof(value):
        memcpy(&value, <const char *>address, sizeof(value))
    return value
