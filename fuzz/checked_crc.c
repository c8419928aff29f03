/* SPDX-License-Identifier: BSD-2-Clause */
/* ISA-L is assembly, which no sanitizer watches: reads the same bytes in C before it does. */
#include <stddef.h>
#include <stdint.h>

uint32_t __real_crc32_gzip_refl(uint32_t seed, const unsigned char *buf, uint64_t length);
uint32_t __wrap_crc32_gzip_refl(uint32_t seed, const unsigned char *buf, uint64_t length);

uint32_t __wrap_crc32_gzip_refl(uint32_t seed, const unsigned char *buf, uint64_t length)
{
	for (uint64_t i = 0; i < length; i++)
		(void)*(const volatile unsigned char *)&buf[i];
	return __real_crc32_gzip_refl(seed, buf, length);
}
