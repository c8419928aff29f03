/* SPDX-License-Identifier: BSD-2-Clause */
/* The ICRC against a bit-by-bit one, for each kind of header, with and without options, of every length. */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/icrc.h"

static uint32_t crc_bits(uint32_t crc, uint8_t byte)
{
	crc ^= byte;
	for (int bit = 0; bit < 8; bit++)
		crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	return crc;
}

/* The bits of byte i that count as ones whatever they are (IBA A17.3.3). */
static uint8_t variant(enum ldma_l3 kind, uint32_t bth, uint32_t i)
{
	if (i == bth + 4)
		return 0xff; /* FECN, BECN, reserved */
	if (kind != LDMA_L3_GRH && (i == bth - 1 || i == bth - 2))
		return 0xff; /* UDP checksum */
	if (kind == LDMA_L3_IPV4)
		return i == 1 || i == 8 || i == 10 || i == 11 ? 0xff : 0;
	if (i == 0)
		return 0x0f;
	return i <= 3 || i == 7 ? 0xff : 0;
}

static uint32_t slow(enum ldma_l3 kind, const uint8_t *l3, uint32_t bth, uint32_t end)
{
	uint32_t crc = 0xffffffff;

	for (int i = 0; i < 8; i++)
		crc = crc_bits(crc, 0xff);
	for (uint32_t i = 0; i < end; i++)
		crc = crc_bits(crc, l3[i] | variant(kind, bth, i));
	return ~crc;
}

static void compare(enum ldma_l3 kind, uint32_t bth)
{
	for (uint32_t end = bth + 12; end < bth + 700; end++) {
		uint8_t *l3 = malloc(end); /* exactly, so that a byte too far is seen */

		for (uint32_t i = 0; i < end; i++)
			l3[i] = (uint8_t)(i * 37 + end);
		assert(ldma_icrc(kind, l3, bth, end) == slow(kind, l3, bth, end));
		free(l3);
	}
}

int main(void)
{
	compare(LDMA_L3_IPV4, 28);
	compare(LDMA_L3_IPV4, 32);
	compare(LDMA_L3_IPV4, 68);
	compare(LDMA_L3_IPV6, 48);
	compare(LDMA_L3_IPV6, 56);
	compare(LDMA_L3_IPV6, LDMA_ICRC_MAX_BTH);
	compare(LDMA_L3_GRH, 40);
	puts("ok");
	return 0;
}
