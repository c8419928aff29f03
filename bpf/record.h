/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Describes a captured frame as it crosses the ring buffer from BPF to user space: this header, then its bytes. */
#ifndef LDMA_RECORD_H
#define LDMA_RECORD_H

#include <linux/types.h>

/* As enum ldma_direction of wire/packet.h. */
#define LDMA_RECORD_RX 1
#define LDMA_RECORD_TX 2

enum ldma_record_flag {
	LDMA_RECORD_XDP = 1,     /* seen by XDP, before the kernel's stack; otherwise by tc */
	LDMA_RECORD_SEGMENT = 2, /* cut out of a GSO or GRO train, with its own lengths and ID */
	LDMA_RECORD_TAGGED = 4,  /* the VLAN tag that the kernel kept beside it was put back */
};

struct ldma_record {
	__u64 time_ns;  /* CLOCK_MONOTONIC */
	__u32 captured; /* bytes of the frame behind this header */
	__u32 length;   /* bytes of the frame on the wire */
	__u32 ifindex;
	__u16 segment;  /* its place in the train, from 0 */
	__u8 direction; /* LDMA_RECORD_RX or _TX */
	__u8 flags;     /* enum ldma_record_flag */
	__u8 frame[];
};
_Static_assert(sizeof(struct ldma_record) == 24, "BPF and user space share this layout");

/* What the programs counted, one struct per CPU; user space adds them up. */
struct ldma_capture_counters {
	__u64 frames;       /* frames of any kind that passed */
	__u64 roce;         /* RoCE packets among them, segments counted one by one */
	__u64 matched;      /* of these, let through by the filters */
	__u64 sampled_out;  /* of those, left out by sampling */
	__u64 recorded;     /* put into the ring */
	__u64 ring_dropped; /* lost because the ring was full */
	__u64 unreadable;   /* lost because they exceed the largest record or could not be read */
	__u64 bytes;        /* length on the wire of the matched ones */
};
_Static_assert(sizeof(struct ldma_capture_counters) == 64, "BPF and user space share this layout");

#endif
