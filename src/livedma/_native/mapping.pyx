# SPDX-License-Identifier: BSD-2-Clause
"""Memory that windows are backed with: mapped, populated, flushed and given back without the interpreter's lock."""
cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.errno cimport ENOMEM, ENOTTY, errno
from libc.stdint cimport int64_t, uint8_t, uintptr_t

from livedma._native.rdma cimport check

cdef extern from *:
    """
    #include <errno.h>
    #include <sched.h>
    #include <stdint.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    /* The C library's headers may be too old to have these. */
    #define LDMA_MADV_POPULATE_READ 22
    #define LDMA_MADV_POPULATE_WRITE 23
    #define LDMA_MPOL_PREFERRED 1
    #define LDMA_PAGE_IS_HUGE (1 << 6)

    struct ldma_page_range {
        uint64_t start, end, categories;
    };

    struct ldma_page_scan { /* struct pm_scan_arg of <linux/fs.h> */
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
    };
    #define LDMA_PAGEMAP_SCAN _IOWR('f', 16, struct ldma_page_scan)

    #define LDMA_STEP (2u << 20)

    /* Fills memory in steps and yields between them: it takes long, and the device's thread may need the processor. */
    static int ldma_fill(uint8_t *start, size_t length, int advice)
    {
        for (size_t done = 0; done < length; done += LDMA_STEP) {
            size_t step = length - done < LDMA_STEP ? length - done : LDMA_STEP;

            if (madvise(start + done, step, advice) < 0)
                return -errno;
            if (done + step < length)
                sched_yield();
        }
        return 0;
    }

    static int64_t ldma_huge_bytes(int pagemap, uintptr_t start, uintptr_t end)
    {
        struct ldma_page_range found[64];
        int64_t bytes = 0;

        while (start < end) {
            struct ldma_page_scan scan = {
                .size = sizeof(scan), .start = start, .end = end,
                .vec = (uintptr_t)found, .vec_len = 64,
                .category_mask = LDMA_PAGE_IS_HUGE, .return_mask = LDMA_PAGE_IS_HUGE};
            long count = ioctl(pagemap, LDMA_PAGEMAP_SCAN, &scan);

            if (count < 0)
                return -errno;
            for (long i = 0; i < count; i++)
                bytes += (int64_t)(found[i].end - found[i].start);
            if (scan.walk_end <= start)
                break;
            start = scan.walk_end;
        }
        return bytes;
    }

    static int ldma_prefer_node(void *start, size_t length, unsigned int node)
    {
        unsigned long nodes[16] = {0};
        unsigned int bits = 8 * sizeof(long);

        if (node >= 16 * bits)
            return -EINVAL;
        nodes[node / bits] = 1ul << node % bits;
        return syscall(SYS_mbind, start, length, LDMA_MPOL_PREFERRED, nodes, 16ul * bits, 0) < 0
            ? -errno : 0;
    }

    /* Reserves length bytes on a multiple of align, so that no other mapping can take the range. */
    static void *ldma_find_range(size_t length, size_t align)
    {
        size_t all = length + align;
        uint8_t *start = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        size_t before;

        if (start == MAP_FAILED)
            return NULL;
        before = (align - (uintptr_t)start % align) % align;
        if (before)
            munmap(start, before);
        if (all - before > length)
            munmap(start + before + length, all - before - length);
        return start + before;
    }
    """
    int ldma_fill(uint8_t *start, size_t length, int advice) nogil
    int64_t ldma_huge_bytes(int pagemap, uintptr_t start, uintptr_t end) nogil
    int ldma_prefer_node(void *start, size_t length, unsigned int node) nogil
    void *ldma_find_range(size_t length, size_t align) nogil
    int LDMA_MADV_POPULATE_READ, LDMA_MADV_POPULATE_WRITE

cdef extern from "sys/mman.h" nogil:
    int PROT_READ, PROT_WRITE, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS, MAP_FIXED, MS_SYNC
    int MADV_DONTFORK, MADV_HUGEPAGE
    void *MAP_FAILED
    void *mmap(void *start, size_t length, int protection, int flags, int fd, int64_t offset)
    int munmap(void *start, size_t length)
    int madvise(void *start, size_t length, int advice)
    int msync(void *start, size_t length, int flags)

cdef extern from "unistd.h" nogil:
    int getpid()

cdef extern from "memory/guarded.h" nogil:
    bint ldma_guarded_copy(void *to, const void *source, size_t length)


def can_guard():
    """Returns whether this process may copy from and to its own memory by a system call; windows on files need it."""
    cdef char one = 1, other = 0
    return ldma_guarded_copy(&other, &one, 1) and other == 1


@cython.no_gc
cdef class Mapping:
    """Maps a range of this process's memory, which is a buffer. Children of fork do not have it, so memory that is given
    back is free.

    With fd it maps a file, and shares it with all others that map it; without one the memory is anonymous.
    """

    cdef void *start
    cdef int owner
    cdef readonly size_t length
    cdef readonly size_t views  # buffers on it that are in use
    cdef readonly bint closed

    def __init__(self, size_t length, size_t align=4096, *, int fd=-1, int64_t offset=0):
        cdef int flags = MAP_FIXED | (MAP_SHARED if fd >= 0 else MAP_PRIVATE | MAP_ANONYMOUS)
        cdef void *place
        cdef void *made
        cdef int error = 0
        if self.start != NULL:
            raise ValueError("the memory is there already")
        if not length or align & (align - 1) or align < 4096 or length % 4096:
            raise ValueError("memory comes in pages, on a power of two")
        with nogil:
            place = ldma_find_range(length, align)
            made = MAP_FAILED
            if place != NULL:
                made = mmap(place, length, PROT_READ | PROT_WRITE, flags, fd, offset)
                error = errno
            if made == MAP_FAILED and place != NULL:
                munmap(place, length)
        if made == MAP_FAILED:
            check(-error if place != NULL else -ENOMEM)
        self.start, self.length, self.owner = made, length, getpid()
        madvise(made, length, MADV_DONTFORK)

    def __dealloc__(self):
        self.unmap()

    cdef void unmap(self) noexcept:
        cdef void *start = self.start
        self.start = NULL
        # A child of fork never had the mapping, and may have mapped something else there.
        if start != NULL and self.owner == getpid():
            with nogil:
                munmap(start, self.length)

    cdef int live(self) except -1:
        if self.closed or self.start == NULL:
            raise ValueError("the memory is given back")
        return 0

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self.live()
        PyBuffer_FillInfo(buffer, self, self.start, self.length, 0, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.views -= 1
        if self.closed and not self.views:
            self.unmap()

    def close(self):
        """Gives the memory back once no view of it is left. No new view is made."""
        self.closed = True
        if not self.views:
            self.unmap()

    @property
    def address(self):
        self.live()
        return <uintptr_t>self.start

    def want_huge(self):
        """Asks for huge pages, which it gets if there are any when it is populated."""
        self.live()
        check(-errno if madvise(self.start, self.length, MADV_HUGEPAGE) < 0 else 0)

    cdef int fill(self, int advice) except -1:
        cdef int result
        self.live()
        with nogil:
            result = ldma_fill(<uint8_t *>self.start, self.length, advice)
        return check(result)

    def populate(self):
        """Brings all of it into memory, ready to be written."""
        self.fill(LDMA_MADV_POPULATE_WRITE)

    def load(self):
        """Brings all of it into memory to be read, so that no page of a file has to be written back."""
        self.fill(LDMA_MADV_POPULATE_READ)

    def prefer_node(self, unsigned int node):
        """Prefers memory of this node. It is called before the memory is populated."""
        self.live()
        check(ldma_prefer_node(self.start, self.length, node))

    def huge_bytes(self):
        """Returns how many bytes of it are in huge pages; None if this kernel (before 6.7) does not tell."""
        cdef int64_t found = 0
        self.live()
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            found = ldma_huge_bytes(pagemap.fileno(), <uintptr_t>self.start,
                                    <uintptr_t>self.start + self.length)
        if found == -ENOTTY:
            return None
        check(<int>found if found < 0 else 0)
        return found

    def flush(self, size_t offset, size_t length):
        """Writes a range of a file's memory to disk, and returns when it is there."""
        cdef char *start
        cdef size_t before = offset % 4096
        cdef int result, error
        self.live()
        if offset > self.length or length > self.length - offset:
            raise ValueError("outside of the memory")
        start = <char *>self.start + offset - before
        with nogil:
            result = msync(start, length + before, MS_SYNC)
            error = errno
        check(-error if result < 0 else 0)
