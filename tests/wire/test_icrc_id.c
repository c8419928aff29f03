/* SPDX-License-Identifier: BSD-2-Clause */
/* The IPv4 ID that an ICRC was made with: found among all, and none where something else differs. */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/icrc.h"
#include "wire/icrc_id.h"

#define BTH 28

int main(void)
{
	static const uint16_t ids[] = {0, 1, 0x80, 0x100, 0x1234, 0x8000, 0xff00, 0xffff};
	static struct ldma_icrc_cache cache;
	uint8_t l3[BTH + 700] = {0x45};
	uint16_t found;

	for (uint32_t i = 1; i < sizeof(l3); i++)
		l3[i] = (uint8_t)(i * 37);
	for (uint32_t end = BTH + 12; end < sizeof(l3); end++) {
		for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
			uint32_t icrc;

			put16(l3 + 4, ids[i]);
			icrc = ldma_icrc(LDMA_L3_IPV4, l3, BTH, end);
			put16(l3 + 4, (uint16_t)(end * 263)); /* what its reader guesses */
			assert(ldma_icrc_find_id(&cache, l3, end, icrc, &found));
			assert(found == ids[i]);
			assert(!ldma_icrc_find_id(&cache, l3, end, icrc ^ 1, &found));
			l3[end - 1] ^= 0x10;
			assert(!ldma_icrc_find_id(&cache, l3, end, icrc, &found));
			l3[end - 1] ^= 0x10;
		}
	}
	puts("ok");
	return 0;
}
