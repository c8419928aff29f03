#include "icrc.h"

#include <isa-l/crc.h>
#include <string.h>

#define LRH_BYTES 8 /* stands in for the local route header, as ones */
#define BTH_BYTES 12
/* Packets up to this size are copied whole: one CRC call is cheaper than two. */
#define COPY_BYTES 256

uint32_t ldma_icrc(enum ldma_l3 kind, const uint8_t *l3, uint32_t bth, uint32_t end)
{
	uint8_t head[LRH_BYTES + LDMA_ICRC_MAX_BTH + BTH_BYTES + COPY_BYTES];
	uint8_t *ip = head + LRH_BYTES;
	uint32_t copied = end <= COPY_BYTES ? end : bth + BTH_BYTES;
	uint32_t crc;

	memset(head, 0xff, LRH_BYTES);
	memcpy(ip, l3, copied);
	if (kind == LDMA_L3_IPV4) {
		ip[1] = 0xff;             /* TOS */
		ip[8] = 0xff;             /* TTL */
		memset(ip + 10, 0xff, 2); /* header checksum */
	} else {
		ip[0] |= 0x0f;           /* traffic class, flow label */
		memset(ip + 1, 0xff, 3);
		ip[7] = 0xff; /* hop limit */
	}
	if (kind != LDMA_L3_GRH)
		memset(ip + bth - 2, 0xff, 2); /* UDP checksum */
	ip[bth + 4] = 0xff;                    /* FECN, BECN, reserved */

	crc = crc32_gzip_refl(0, head, LRH_BYTES + copied);
	if (copied < end)
		crc = crc32_gzip_refl(crc, l3 + copied, end - copied);
	return crc;
}
