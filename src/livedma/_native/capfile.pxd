# SPDX-License-Identifier: BSD-2-Clause
# Capture files, as the bindings see them. Contracts are in capture/capfile.h and capture/pcapng_write.h.
from livedma._native.packet cimport ldma_batch
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "capture/capfile.h" nogil:
    enum: LDMA_CAPFILE_BLOCK_MAX
    int LDMA_CAPFILE_NEED, LDMA_CAPFILE_FULL, LDMA_CAPFILE_END, LDMA_CAPFILE_ERROR
    int LDMA_CAPFILE_UNKNOWN, LDMA_CAPFILE_PCAP, LDMA_CAPFILE_PCAPNG
    const uint64_t LDMA_CAPFILE_UNSAID

    struct ldma_capfile_interface:
        uint32_t link
        uint32_t snaplen
        uint64_t frames
        uint64_t received
        uint64_t dropped
        char name[63]

    struct ldma_capfile:
        int format
        uint64_t offset
        uint64_t frames
        uint64_t contradictions
        size_t need
        char error[160]
        ldma_capfile_interface *interfaces
        uint32_t interface_count

    void ldma_capfile_init(ldma_capfile *file)
    void ldma_capfile_destroy(ldma_capfile *file)
    int ldma_capfile_fill(ldma_capfile *file, ldma_batch *batch, const uint8_t *bytes,
                          size_t available, bint at_end, size_t *consumed)
    uint64_t ldma_capfile_dropped(const ldma_capfile *file)
    bint ldma_link_is_known(uint32_t link)

cdef extern from "capture/pcapng_write.h" nogil:
    enum: LDMA_PCAPNG_PACKET_OVERHEAD

    ctypedef struct ldma_pcapng_packet_c "struct ldma_pcapng_packet":
        const uint8_t *frame
        uint64_t time_ns
        uint32_t interface
        uint32_t captured
        uint32_t length
        uint8_t direction

    ctypedef struct ldma_pcapng_statistics_c "struct ldma_pcapng_statistics":
        uint32_t interface
        uint64_t time_ns
        uint64_t start_ns
        uint64_t end_ns
        uint64_t received
        uint64_t dropped
        uint64_t dropped_later

    size_t ldma_pcapng_section(uint8_t *buf, size_t size, const char *hardware, const char *os,
                               const char *application)
    size_t ldma_pcapng_interface(uint8_t *buf, size_t size, uint16_t link, uint32_t snaplen,
                                 const char *name)
    size_t write_packet "ldma_pcapng_packet"(uint8_t *buf, size_t size,
                                             const ldma_pcapng_packet_c *packet)
    size_t write_statistics "ldma_pcapng_statistics"(uint8_t *buf, size_t size,
                                                     const ldma_pcapng_statistics_c *statistics)
