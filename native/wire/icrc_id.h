/* The ICRC of an IPv4 packet whose ID is unknown: a UDP socket's reader never sees it, and the ICRC covers it. A CRC is
 * linear, so one can still ask which of the 65,536 IDs explains it, if any: 16 of its 32 bits go on protecting. */
#ifndef LDMA_ICRC_ID_H
#define LDMA_ICRC_ID_H

#include <stdbool.h>
#include <stdint.h>

#define LDMA_ICRC_CACHE_SIZE 64

/* Per length of packet a factor that takes long to compute. Zero to start with; one thread at a time. */
struct ldma_icrc_cache {
	uint32_t bytes[LDMA_ICRC_CACHE_SIZE], factor[LDMA_ICRC_CACHE_SIZE];
};

/* Whether the IPv4 packet at l3, without options, up to byte end has the ICRC found for some ID; ret is then that ID,
 * which is the only one. What l3 has for an ID does not matter. */
bool ldma_icrc_find_id(struct ldma_icrc_cache *cache, const uint8_t *l3, uint32_t end,
		       uint32_t found, uint16_t *ret);

#endif
