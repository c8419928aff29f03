/* SPDX-License-Identifier: BSD-2-Clause */
#include "wire/icrc_id.h"

#include "base/bytes.h"
#include "wire/icrc.h"

#define POLYNOMIAL 0xedb88320u /* CRC-32's, bits reversed: the highest bit is x^0 */
#define ONE (1u << 31)
#define X (1u << 30)
#define BTH_OFFSET 28
#define ID_OFFSET 4

/* Returns a * b modulo the polynomial. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; a; bit >>= 1) {
		if (a & bit) {
			product ^= b;
			a &= ~bit;
		}
		b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
	}
	return product;
}

/* Returns x^-bits: the polynomial is primitive, so x^(2^32 - 1) is one. */
static uint32_t inverse_power(uint32_t bits)
{
	uint32_t result = ONE, base = X;

	for (uint32_t e = UINT32_MAX - bits; e; e >>= 1) {
		if (e & 1)
			result = multiply(result, base);
		base = multiply(base, base);
	}
	return result;
}

bool ldma_icrc_find_id(struct ldma_icrc_cache *cache, const uint8_t *l3, uint32_t end,
		       uint32_t found, uint16_t *ret)
{
	uint32_t difference = ldma_icrc(LDMA_L3_IPV4, l3, BTH_OFFSET, end) ^ found;
	uint32_t bytes = end - ID_OFFSET, slot = bytes / 4 % LDMA_ICRC_CACHE_SIZE;

	if (cache->bytes[slot] != bytes) {
		cache->bytes[slot] = bytes;
		cache->factor[slot] = inverse_power(8 * bytes);
	}
	/* Wound back to before the ID, a difference in the ID alone lies in the next two bytes. */
	difference = multiply(cache->factor[slot], difference);
	if (difference >> 16)
		return false;
	*ret = (uint16_t)(get16(l3 + ID_OFFSET) ^ __builtin_bswap16((uint16_t)difference));
	return true;
}
