/* SPDX-License-Identifier: BSD-2-Clause */
/* Functions that append to a line. Each returns where the next character goes; the caller makes sure that there is
 * room. */
#ifndef LDMA_CHARS_H
#define LDMA_CHARS_H

#include <stdint.h>
#include <string.h>

#define PUT(p, literal) put_bytes((p), (literal), sizeof(literal) - 1)

static inline char *put_bytes(char *p, const char *s, size_t n)
{
	memcpy(p, s, n);
	return p + n;
}

static inline char *put_string(char *p, const char *s)
{
	return put_bytes(p, s, strlen(s));
}

static inline char *put_decimal(char *p, uint64_t value)
{
	char digits[20];
	int i = sizeof(digits);

	do {
		digits[--i] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	return put_bytes(p, digits + i, sizeof(digits) - (size_t)i);
}

/* Writes at least `width` digits, more where the value needs them. */
static inline char *put_hex(char *p, uint64_t value, int width)
{
	while (width < 16 && value >> (4 * width))
		width++;
	while (width--)
		*p++ = "0123456789abcdef"[value >> (4 * width) & 15];
	return p;
}

/* Appends blanks up to `width` characters from start. */
static inline char *pad_to(char *p, const char *start, size_t width)
{
	while ((size_t)(p - start) < width)
		*p++ = ' ';
	return p;
}

#endif
