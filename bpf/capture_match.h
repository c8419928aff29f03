/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The filters of a capture: BPF programs and the device's tap decide with the same functions which packets to take. */
#ifndef LDMA_CAPTURE_MATCH_H
#define LDMA_CAPTURE_MATCH_H

#include <stdbool.h>

#include "bpf/capture_config.h"

#define LDMA_INLINE static inline __attribute__((always_inline))

LDMA_INLINE bool ldma_capture_prefix_has(const volatile struct ldma_capture_prefix *prefix,
					 const __u64 address[2])
{
	return (address[0] & prefix->mask[0]) == prefix->address[0] &&
	       (address[1] & prefix->mask[1]) == prefix->address[1];
}

/* src, dst: as struct ldma_capture_prefix has addresses. */
LDMA_INLINE bool ldma_capture_takes_addresses(const volatile struct ldma_capture_config *config,
					      __u32 ip_version, const __u64 src[2],
					      const __u64 dst[2])
{
	__u32 asked = 0, met = 0;

	for (__u32 i = 0; i < LDMA_CAPTURE_PREFIXES && i < config->prefix_count; i++) {
		const volatile struct ldma_capture_prefix *prefix = &config->prefixes[i];
		__u32 side = prefix->side & 3;

		asked |= 1u << side;
		if (prefix->ip_version != ip_version)
			continue;
		if ((side & LDMA_CAPTURE_SRC && ldma_capture_prefix_has(prefix, src)) ||
		    (side & LDMA_CAPTURE_DST && ldma_capture_prefix_has(prefix, dst)))
			met |= 1u << side;
	}
	return asked == met;
}

/* operation: enum ldma_operation; src_qp: a DETH's, or 0. */
LDMA_INLINE bool ldma_capture_takes_transport(const volatile struct ldma_capture_config *config,
					      __u32 operation, __u32 dest_qp, __u32 src_qp)
{
	if (config->operations && !(config->operations & 1u << (operation & 31)))
		return false;
	if (!config->qp_count)
		return true;
	for (__u32 i = 0; i < LDMA_CAPTURE_QPS && i < config->qp_count; i++)
		if (config->qps[i] == dest_qp || (src_qp && config->qps[i] == src_qp))
			return true;
	return false;
}

/* Returns whether sampling leaves out the packet that was the matched-th to match, counted from 1. */
LDMA_INLINE bool ldma_capture_leaves_out(const volatile struct ldma_capture_config *config,
					 __u64 matched)
{
	return config->sample > 1 && (matched - 1) % config->sample;
}

#endif
