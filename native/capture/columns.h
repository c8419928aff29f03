/* SPDX-License-Identifier: BSD-2-Clause */
/* Packets as columns, in the memory layout of Apache Arrow: a set of rows that is filled batch by batch, which Python
 * hands on without further copies. One thread at a time uses a set. */
#ifndef LDMA_COLUMNS_H
#define LDMA_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/batch.h"

#define LDMA_COLUMNS_VERSION 1

enum ldma_column {
#define COLUMN(name, arrow, ctype, group, value) LDMA_COLUMN_##name,
#define FLAG(name, group, value) LDMA_COLUMN_##name,
#include "capture/columns.def"
	LDMA_COLUMN_COUNT
};

struct ldma_column_info {
	const char *name;
	const char *arrow; /* "int64", "uint8", …, "bool" */
	uint8_t bytes;     /* of a value; 0: one bit */
	bool nullable;
};

extern const struct ldma_column_info ldma_column_infos[LDMA_COLUMN_COUNT];

/* The most distinct addresses that one set of rows can hold; rows from more hosts go into the next set. */
#define LDMA_ADDRESSES_MAX 4096
#define LDMA_ADDRESS_NONE (-1)
#define LDMA_ERROR_TEXT_MAX 256

struct ldma_column_address {
	uint8_t bytes[16];
	uint8_t ip_version;
};

/* A set of `rows` rows, of at most `capacity`. Bitmaps are least significant bit first, as Arrow wants them. */
struct ldma_columns {
	uint32_t rows, capacity;
	uint8_t *values[LDMA_COLUMN_COUNT];
	uint8_t *validity[LDMA_COLUMN_COUNT]; /* of nullable columns */
	int32_t *src, *dst;                   /* index into addresses, or LDMA_ADDRESS_NONE */
	struct ldma_column_address addresses[LDMA_ADDRESSES_MAX];
	uint32_t address_count;
	uint16_t address_slots[2 * LDMA_ADDRESSES_MAX]; /* hash table: index + 1 */
	int32_t *error_offsets;                         /* rows + 1 of them, into error_text */
	uint8_t *error_validity;
	char *error_text;
	size_t error_size;
};

/* Returns an empty set, or NULL without memory. capacity is rounded up to a multiple of 64. */
struct ldma_columns *ldma_columns_create(uint32_t capacity);
void ldma_columns_destroy(struct ldma_columns *columns); /* accepts NULL */
void ldma_columns_reset(struct ldma_columns *columns);

/* Appends the packets from `first` on. Returns how many it took: fewer than all when rows, addresses or memory for
 * error texts are used up. */
uint32_t ldma_columns_append(struct ldma_columns *columns, const struct ldma_batch *batch,
			     uint32_t first);

#endif
