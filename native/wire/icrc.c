/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/icrc.h"

#include <isa-l/crc.h>
#include <string.h>

#define LRH_BYTES 8 /* ones in the place of the local route header */
#define BTH_BYTES 12
/* Packets up to this size are copied whole: one CRC call is cheaper than two. */
#define COPY_BYTES 256
#define HEAD_MAX (LRH_BYTES + LDMA_ICRC_MAX_BTH + BTH_BYTES + COPY_BYTES)

typedef uint64_t chunk __attribute__((vector_size(16)));

/* A mask with ones over what may change on the way, for headers without options, from the LRH's place on. It is in
 * whole chunks, so that the CRC can load what is stored masked without a stall. */
struct mask {
	uint32_t bth; /* where the BTH has to be for the mask to fit */
	uint32_t chunks;
	uint8_t bytes[80];
};

#define ONES_8 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff
static const struct mask masks[] = {
	[LDMA_L3_IPV4] = {28,
			  3,
			  {ONES_8, [9] = 0xff, [16] = 0xff, [18] = 0xff, 0xff, [34] = 0xff, 0xff,
			   [40] = 0xff}},
	[LDMA_L3_IPV6] = {48,
			  5,
			  {ONES_8, 0x0f, 0xff, 0xff, 0xff, [15] = 0xff, [54] = 0xff, 0xff,
			   [60] = 0xff}},
	[LDMA_L3_GRH] = {40, 4, {ONES_8, 0x0f, 0xff, 0xff, 0xff, [15] = 0xff, [52] = 0xff}},
};

/* Writes the mask's part of the packet to head. */
static void copy_masked(const struct mask *mask, const uint8_t *l3, uint8_t *head)
{
	chunk value, ones;
	uint64_t first;

	memcpy(&first, l3, sizeof(first));
	memcpy(&ones, mask->bytes, sizeof(ones));
	value = (chunk){0, first} | ones;
	memcpy(head, &value, sizeof(value));
	for (uint32_t at = sizeof(chunk); at < mask->chunks * sizeof(chunk); at += sizeof(chunk)) {
		memcpy(&value, l3 + at - LRH_BYTES, sizeof(value));
		memcpy(&ones, mask->bytes + at, sizeof(ones));
		value |= ones;
		memcpy(head + at, &value, sizeof(value));
	}
}

/* Does the same for headers of any length. */
static void copy_any(enum ldma_l3 kind, const uint8_t *l3, uint32_t bth, uint8_t *head,
		     uint32_t copied)
{
	uint8_t *ip = head + LRH_BYTES;

	memset(head, 0xff, LRH_BYTES);
	memcpy(ip, l3, copied);
	if (kind == LDMA_L3_IPV4) {
		ip[1] = 0xff;             /* TOS */
		ip[8] = 0xff;             /* TTL */
		memset(ip + 10, 0xff, 2); /* header checksum */
	} else {
		ip[0] |= 0x0f; /* traffic class, flow label */
		memset(ip + 1, 0xff, 3);
		ip[7] = 0xff; /* hop limit */
	}
	if (kind != LDMA_L3_GRH)
		memset(ip + bth - 2, 0xff, 2); /* UDP checksum */
	ip[bth + 4] = 0xff;                    /* FECN, BECN, reserved */
}

uint32_t ldma_icrc(enum ldma_l3 kind, const uint8_t *l3, uint32_t bth, uint32_t end)
{
	const struct mask *mask = &masks[kind];
	uint32_t copied = mask->chunks * (uint32_t)sizeof(chunk) - LRH_BYTES, crc;
	uint8_t head[HEAD_MAX];

	if (bth == mask->bth && end >= copied) {
		copy_masked(mask, l3, head);
		if (end <= COPY_BYTES) {
			memcpy(head + LRH_BYTES + copied, l3 + copied, end - copied);
			copied = end;
		}
	} else {
		copied = end <= COPY_BYTES ? end : bth + BTH_BYTES;
		copy_any(kind, l3, bth, head, copied);
	}
	crc = crc32_gzip_refl(0, head, LRH_BYTES + copied);
	if (copied < end)
		crc = crc32_gzip_refl(crc, l3 + copied, end - copied);
	return crc;
}
