/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The configuration of a capture, which user space sets before its programs are loaded: the same struct in BPF and user
 * space. */
#ifndef LDMA_CAPTURE_CONFIG_H
#define LDMA_CAPTURE_CONFIG_H

#include <linux/types.h>

#define LDMA_CAPTURE_PREFIXES 8
#define LDMA_CAPTURE_QPS 16
#define LDMA_CAPTURE_SNAPLEN_MIN 64
/* the largest record: a 9,600 byte MTU with all that may precede it */
#define LDMA_CAPTURE_SNAPLEN_MAX 9728

enum ldma_capture_side { LDMA_CAPTURE_SRC = 1, LDMA_CAPTURE_DST = 2, LDMA_CAPTURE_EITHER = 3 };

/* Bytes as on the wire, IPv4 in the first four; address has no bit set outside of mask. */
struct ldma_capture_prefix {
	__u64 address[2];
	__u64 mask[2];
	__u32 ip_version;
	__u32 side; /* enum ldma_capture_side */
};

/* A packet is captured if it meets each kind of condition that is given: for addresses, one of the prefixes of each
 * side that has any; one of the QPs (its destination, or the source in a DETH); one of the operations. */
struct ldma_capture_config {
	struct ldma_capture_prefix prefixes[LDMA_CAPTURE_PREFIXES];
	__u32 qps[LDMA_CAPTURE_QPS];
	__u32 prefix_count;
	__u32 qp_count;
	__u32 operations; /* bits 1 << enum ldma_operation; 0: any */
	__u32 sample;     /* of every so many matching packets of a CPU one is kept; 0 and 1: all */
	__u32 snaplen;    /* bytes of a frame that are kept */
	__u32 wake_bytes; /* a sleeping consumer is woken when the ring holds this much */
};
_Static_assert(sizeof(struct ldma_capture_config) ==
		       40 * LDMA_CAPTURE_PREFIXES + 4 * LDMA_CAPTURE_QPS + 24,
	       "BPF and user space share this layout");

#endif
