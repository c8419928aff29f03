/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/columns.h"

#include <stdlib.h>
#include <string.h>

/* Rows are taken in blocks, so that the packets of a block are in the cache for every column. */
#define BLOCK 64

enum {
#define GROUP(name, present) GROUP_##name,
#include "capture/columns.def"
};

const struct ldma_column_info ldma_column_infos[LDMA_COLUMN_COUNT] = {
#define COLUMN(name_, arrow_, ctype, group, value)                                                 \
	[LDMA_COLUMN_##name_] = {#name_, #arrow_, sizeof(ctype), GROUP_##group != GROUP_always},
#define FLAG(name_, group, value)                                                                  \
	[LDMA_COLUMN_##name_] = {#name_, "bool", 0, GROUP_##group != GROUP_always},
#include "capture/columns.def"
};

static size_t bitmap_bytes(uint32_t rows)
{
	return (rows + 7) / 8 + 8; /* put_bits may touch one word past the end */
}

struct ldma_columns *ldma_columns_create(uint32_t capacity)
{
	struct ldma_columns *columns = calloc(1, sizeof(*columns));
	bool ok = columns;

	capacity = (capacity + BLOCK - 1) / BLOCK * BLOCK;
	for (int i = 0; ok && i < LDMA_COLUMN_COUNT; i++) {
		const struct ldma_column_info *info = &ldma_column_infos[i];
		size_t bytes =
			info->bytes ? (size_t)capacity * info->bytes : bitmap_bytes(capacity);

		ok = (columns->values[i] = calloc(1, bytes));
		if (ok && info->nullable)
			ok = (columns->validity[i] = calloc(1, bitmap_bytes(capacity)));
	}
	ok = ok && (columns->src = calloc(capacity, sizeof(int32_t)));
	ok = ok && (columns->dst = calloc(capacity, sizeof(int32_t)));
	ok = ok && (columns->error_offsets = calloc(capacity + 1, sizeof(int32_t)));
	ok = ok && (columns->error_validity = calloc(1, bitmap_bytes(capacity)));
	if (!ok) {
		ldma_columns_destroy(columns);
		return NULL;
	}
	columns->capacity = capacity;
	return columns;
}

void ldma_columns_destroy(struct ldma_columns *columns)
{
	if (!columns)
		return;
	for (int i = 0; i < LDMA_COLUMN_COUNT; i++) {
		free(columns->values[i]);
		free(columns->validity[i]);
	}
	free(columns->src);
	free(columns->dst);
	free(columns->error_offsets);
	free(columns->error_validity);
	free(columns->error_text);
	free(columns);
}

void ldma_columns_reset(struct ldma_columns *columns)
{
	columns->rows = 0;
	columns->address_count = 0;
	memset(columns->address_slots, 0, sizeof(columns->address_slots));
}

/* Sets bits row … row + n - 1 to the low n <= 64 bits of `bits`, and clears those after them. */
static void put_bits(uint8_t *bitmap, uint32_t row, uint64_t bits)
{
	uint8_t *p = bitmap + row / 8;
	uint32_t shift = row % 8;
	uint64_t word;
	uint8_t keep = (uint8_t)(*p & ((1u << shift) - 1));

	word = bits << shift | keep;
	memcpy(p, &word, sizeof(word));
	if (shift)
		p[8] = (uint8_t)(bits >> (64 - shift));
}

static int32_t address_index(struct ldma_columns *columns, const uint8_t *bytes, uint8_t ip_version)
{
	uint64_t low, high, hash;
	uint32_t slot;

	memcpy(&low, bytes, 8);
	memcpy(&high, bytes + 8, 8);
	hash = (low ^ (high + ip_version) * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
	for (slot = (uint32_t)(hash >> 51);; slot = (slot + 1) % (2 * LDMA_ADDRESSES_MAX)) {
		struct ldma_column_address *address;
		uint32_t index = columns->address_slots[slot];

		if (!index)
			break;
		address = &columns->addresses[index - 1];
		if (!memcmp(address->bytes, bytes, 16) && address->ip_version == ip_version)
			return (int32_t)index - 1;
	}
	if (columns->address_count == LDMA_ADDRESSES_MAX)
		return -2;
	memcpy(columns->addresses[columns->address_count].bytes, bytes, 16);
	columns->addresses[columns->address_count].ip_version = ip_version;
	columns->address_slots[slot] = (uint16_t)++columns->address_count;
	return (int32_t)columns->address_count - 1;
}

_Static_assert(2 * LDMA_ADDRESSES_MAX == 1 << (64 - 51), "the hash's top bits index the slots");

/* Returns how many of the n packets fit. */
static uint32_t append_addresses(struct ldma_columns *columns, const struct ldma_packet *packets,
				 uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct ldma_packet *p = &packets[i];
		int32_t src = LDMA_ADDRESS_NONE, dst = LDMA_ADDRESS_NONE;

		if (p->seen & LDMA_SEEN_IP) {
			src = address_index(columns, p->src, p->ip_version);
			dst = address_index(columns, p->dst, p->ip_version);
			if (src < LDMA_ADDRESS_NONE || dst < LDMA_ADDRESS_NONE)
				return i;
		}
		columns->src[columns->rows + i] = src;
		columns->dst[columns->rows + i] = dst;
	}
	return n;
}

static uint32_t append_errors(struct ldma_columns *columns, const struct ldma_packet *packets,
			      uint32_t n)
{
	int32_t *offsets = columns->error_offsets + columns->rows;
	uint64_t valid = 0;

	for (uint32_t i = 0; i < n; i++) {
		offsets[i + 1] = offsets[i];
		if (!packets[i].error)
			continue;
		if ((size_t)offsets[i] + LDMA_ERROR_TEXT_MAX > columns->error_size) {
			size_t size = columns->error_size * 2 + 64 * LDMA_ERROR_TEXT_MAX;
			char *text = realloc(columns->error_text, size);

			if (!text) {
				n = i;
				break;
			}
			columns->error_text = text;
			columns->error_size = size;
		}
		offsets[i + 1] += (int32_t)ldma_packet_error_text(
			&packets[i], columns->error_text + offsets[i], LDMA_ERROR_TEXT_MAX);
		valid |= 1ull << i;
	}
	put_bits(columns->error_validity, columns->rows, valid);
	return n;
}

/* Appends one block of at most 64 packets to every plain column. */
static void append_block(struct ldma_columns *columns, const struct ldma_packet *packets,
			 uint32_t n)
{
	uint32_t row = columns->rows;
#define GROUP(name, present) uint64_t has_##name = 0;
#define FLAG(name, group, value) uint64_t flag_##name = 0;
#include "capture/columns.def"

	for (uint32_t i = 0; i < n; i++) {
		const struct ldma_packet *p = &packets[i];
#define GROUP(name, present) has_##name |= (uint64_t)!!(present) << i;
#define FLAG(name, group, value) flag_##name |= (uint64_t)!!(value) << i;
#include "capture/columns.def"
	}

	/* Often no packet of the block has a group: then its values stay as they are, under nulls. */
#define COLUMN(name, arrow, ctype, group, value)                                                   \
	if (columns->validity[LDMA_COLUMN_##name])                                                 \
		put_bits(columns->validity[LDMA_COLUMN_##name], row, has_##group);                 \
	if (has_##group) {                                                                         \
		ctype *values = (ctype *)columns->values[LDMA_COLUMN_##name] + row;                \
		for (uint32_t i = 0; i < n; i++) {                                                 \
			const struct ldma_packet *p = &packets[i];                                 \
			values[i] = (ctype)(value);                                                \
		}                                                                                  \
	}
#define FLAG(name, group, value)                                                                   \
	put_bits(columns->validity[LDMA_COLUMN_##name], row, has_##group);                         \
	put_bits(columns->values[LDMA_COLUMN_##name], row, flag_##name);
#include "capture/columns.def"
}

uint32_t ldma_columns_append(struct ldma_columns *columns, const struct ldma_batch *batch,
			     uint32_t first)
{
	uint32_t taken = 0;

	while (first + taken < batch->count && columns->rows < columns->capacity) {
		const struct ldma_packet *packets = batch->packets + first + taken;
		uint32_t n = batch->count - first - taken, fit;

		if (n > columns->capacity - columns->rows)
			n = columns->capacity - columns->rows;
		if (n > BLOCK)
			n = BLOCK;
		fit = append_addresses(columns, packets, n);
		fit = append_errors(columns, packets, fit);
		append_block(columns, packets, fit);
		columns->rows += fit;
		taken += fit;
		if (fit < n)
			break;
	}
	return taken;
}
