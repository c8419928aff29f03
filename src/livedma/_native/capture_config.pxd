# SPDX-License-Identifier: BSD-2-Clause
# The filters and counters that captures by BPF and taps of a device share.
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "bpf/capture_config.h" nogil:
    int LDMA_CAPTURE_PREFIXES, LDMA_CAPTURE_QPS
    int LDMA_CAPTURE_SNAPLEN_MIN, LDMA_CAPTURE_SNAPLEN_MAX

    struct ldma_capture_prefix:
        uint64_t address[2]
        uint64_t mask[2]
        uint32_t ip_version
        uint32_t side

    struct ldma_capture_config:
        ldma_capture_prefix *prefixes
        uint32_t *qps
        uint32_t prefix_count
        uint32_t qp_count
        uint32_t operations
        uint32_t sample
        uint32_t snaplen

cdef extern from "bpf/record.h" nogil:
    struct ldma_capture_counters:
        uint64_t frames
        uint64_t roce
        uint64_t matched
        uint64_t sampled_out
        uint64_t recorded
        uint64_t ring_dropped
        uint64_t unreadable
        uint64_t bytes


cdef inline int fill_config(ldma_capture_config *config, prefixes, qps, uint32_t operations,
                     uint32_t sample, uint32_t snaplen) except -1:
    if len(prefixes) > LDMA_CAPTURE_PREFIXES:
        raise ValueError(f"at most {LDMA_CAPTURE_PREFIXES} addresses can be filtered")
    if len(qps) > LDMA_CAPTURE_QPS:
        raise ValueError(f"at most {LDMA_CAPTURE_QPS} QPs can be filtered")
    cdef bytes address, mask
    for i, (side, version, address, mask) in enumerate(prefixes):
        if len(address) != 16 or len(mask) != 16:
            raise ValueError("an address and its mask take 16 bytes each")
        memcpy(config.prefixes[i].address, <const char *>address, 16)
        memcpy(config.prefixes[i].mask, <const char *>mask, 16)
        config.prefixes[i].ip_version = version
        config.prefixes[i].side = side
    config.prefix_count = len(prefixes)
    for i, qp in enumerate(qps):
        config.qps[i] = qp
    config.qp_count = len(qps)
    config.operations = operations
    config.sample = sample
    config.snaplen = snaplen
    return 0
