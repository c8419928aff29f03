# A port takes its place by this; only the session's own extension needs libbpf.
cdef extern from *:
    """
    struct share_session;
    """
    struct share_session:
        pass

cdef class ShareSession:
    cdef share_session *c
    cdef int (*join)(void *session, int socket_fd, int *ret_filter) noexcept

    cdef void *session(self) except NULL
