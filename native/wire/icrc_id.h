/* SPDX-License-Identifier: BSD-2-Clause */
/* The ICRC of an IPv4 packet whose ID is unknown: the reader of a UDP socket never sees the ID, but the ICRC covers it.
 * A CRC is linear, so the ID that explains the ICRC can be found, if one of the 65,536 does: 16 of the 32 bits still
 * protect. */
#ifndef LDMA_ICRC_ID_H
#define LDMA_ICRC_ID_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_ICRC_CACHE_SIZE 64

/* A cache with a factor per length of packet that takes long to compute. The caller owns it and starts it with zeros;
 * one thread at a time uses it. */
struct ldma_icrc_cache {
	uint32_t bytes[LDMA_ICRC_CACHE_SIZE], factor[LDMA_ICRC_CACHE_SIZE];
};

/* Returns whether the IPv4 packet at l3, without options, up to byte end has the ICRC `found` for some ID; *ret is then
 * that ID, which is the only one. The ID at l3 does not matter. */
bool ldma_icrc_find_id(struct ldma_icrc_cache *cache, const uint8_t *l3, uint32_t end,
		       uint32_t found, uint16_t *ret);

#endif
