/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/bytes.h"
#include "capture/capfile_format.h"

/* Block and option types of draft-ietf-opsawg-pcapng. */
#define BLOCK_SECTION 0x0a0d0d0a
#define BLOCK_INTERFACE 1
#define BLOCK_PACKET 2 /* obsolete, still in old files */
#define BLOCK_SIMPLE 3
#define BLOCK_STATISTICS 5
#define BLOCK_ENHANCED 6
#define BYTE_ORDER_MAGIC 0x1a2b3c4d

#define OPTION_END 0
#define IF_NAME 2
#define IF_TSRESOL 9
#define IF_TSOFFSET 14
#define EPB_FLAGS 2
#define EPB_DROPCOUNT 4
#define ISB_IFRECV 4
#define ISB_IFDROP 5
#define ISB_OSDROP 7

#define FRONT_BYTES 8     /* type and length in front of a block's body */
#define OVERHEAD_BYTES 12 /* and the length again after the body */

/* A block of which all bytes are there. */
struct block {
	const uint8_t *body;
	uint32_t type;
	uint32_t length; /* of the body */
};

struct option {
	uint16_t code, length;
	const uint8_t *value;
};

bool ldma_pcapng_is(const uint8_t *bytes)
{
	return get32(bytes) == BLOCK_SECTION;
}

/* Takes the option at *pos of the block's body. Returns whether there was one; sets *broken where its length leads
 * out of the block. */
static bool next_option(const struct ldma_capfile *file, const struct block *block, uint32_t *pos,
			struct option *ret, bool *broken)
{
	const uint8_t *p = block->body + *pos;
	uint32_t there = block->length - *pos, padded;

	*broken = false;
	if (there < 4)
		return false;
	ret->code = file16(file, p);
	ret->length = file16(file, p + 2);
	ret->value = p + 4;
	if (ret->code == OPTION_END)
		return false;
	padded = (ret->length + 3u) & ~3u;
	if (padded > there - 4) {
		*broken = true;
		return false;
	}
	*pos += 4 + padded;
	return true;
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static enum ldma_capfile_step take_section(struct ldma_capfile *file, const struct block *block)
{
	uint16_t major = file16(file, block->body + 4);

	if (major != 1)
		return ldma_capfile_fail(file, "pcapng version %u.%u is unknown (byte %llu)", major,
					 file16(file, block->body + 6),
					 (unsigned long long)file->offset + 12);
	file->section_first = file->interface_count;
	return LDMA_CAPFILE_SKIP;
}

/* if_tsresol: units of 10^-n seconds, or of 2^-n with the highest bit set. */
static void set_resolution(struct ldma_capfile_interface *interface, uint8_t resolution)
{
	uint8_t n = resolution & 0x7f;

	interface->multiplier = interface->divisor = 1;
	interface->shift = 0;
	if (resolution & 0x80) {
		interface->multiplier = 1000000000;
		interface->shift = n;
		return;
	}
	for (; n < 9; n++)
		interface->multiplier *= 10;
	if (n > 9 + 19) { /* 2^64 such units are less than a nanosecond */
		interface->divisor = 0;
		return;
	}
	for (; n > 9; n--)
		interface->divisor *= 10;
}

static enum ldma_capfile_step take_interface(struct ldma_capfile *file, const struct block *block)
{
	struct ldma_capfile_interface *interface;
	struct option option;
	uint32_t pos = 8;
	bool broken;

	interface = ldma_capfile_add_interface(file, file16(file, block->body),
					       file32(file, block->body + 4));
	if (!interface)
		return LDMA_CAPFILE_ERROR;
	while (next_option(file, block, &pos, &option, &broken)) {
		if (option.code == IF_NAME) {
			size_t length = option.length < sizeof(interface->name)
						? option.length
						: sizeof(interface->name) - 1;

			memcpy(interface->name, option.value, length);
			interface->name[length] = 0;
		} else if (option.code == IF_TSRESOL && option.length == 1) {
			set_resolution(interface, option.value[0]);
		} else if (option.code == IF_TSOFFSET && option.length == 8) {
			interface->offset_s = (int64_t)file64(file, option.value);
		}
	}
	/* Without all of its options the meaning of its packets' times is not known. */
	if (broken)
		return ldma_capfile_fail(file,
					 "interface %u has an option that leads out of its "
					 "block (byte %llu)",
					 file->interface_count - file->section_first - 1,
					 (unsigned long long)file->offset + FRONT_BYTES + pos);
	return LDMA_CAPFILE_SKIP;
}

static struct ldma_capfile_interface *find_interface(struct ldma_capfile *file, uint32_t id)
{
	return id < file->interface_count - file->section_first
		       ? &file->interfaces[file->section_first + id]
		       : NULL;
}

static enum ldma_capfile_step take_statistics(struct ldma_capfile *file, const struct block *block)
{
	struct ldma_capfile_interface *interface = find_interface(file, file32(file, block->body));
	uint64_t dropped = 0;
	struct option option;
	uint32_t pos = 12;
	bool said = false, broken;

	if (!interface)
		return LDMA_CAPFILE_SKIP; /* counts of nothing: no packet depends on them */
	while (next_option(file, block, &pos, &option, &broken)) {
		if (option.length != 8)
			continue;
		if (option.code == ISB_IFRECV)
			interface->received = file64(file, option.value);
		if (option.code == ISB_IFDROP || option.code == ISB_OSDROP) {
			dropped = add_saturated(dropped, file64(file, option.value));
			said = true;
		}
	}
	if (said) /* counts are from the start of the capture: the last block has them all */
		interface->dropped = dropped;
	return LDMA_CAPFILE_SKIP;
}

static uint64_t to_ns(const struct ldma_capfile_interface *interface, uint64_t units)
{
	unsigned __int128 ns = (unsigned __int128)units * interface->multiplier;
	__int128 time;

	if (interface->divisor != 1)
		ns = interface->divisor ? ns / interface->divisor : 0;
	time = (__int128)(ns >> interface->shift) + (__int128)interface->offset_s * 1000000000;
	if (time < 0)
		return 0;
	return time > UINT64_MAX ? UINT64_MAX : (uint64_t)time;
}

static enum ldma_capfile_step no_interface(struct ldma_capfile *file, uint32_t id)
{
	return ldma_capfile_fail(
		file, "packet %llu is of interface %u, %u are described (byte %llu)",
		(unsigned long long)file->frames + 1, id,
		file->interface_count - file->section_first, (unsigned long long)file->offset);
}

static void take_packet_options(struct ldma_capfile *file, struct ldma_capfile_interface *interface,
				const struct block *block, uint32_t pos,
				struct ldma_capfile_frame *ret)
{
	struct option option;
	bool broken;

	while (next_option(file, block, &pos, &option, &broken)) {
		if (option.code == EPB_FLAGS && option.length == 4) {
			uint32_t flags = file32(file, option.value) & 3;

			ret->direction = flags == 1   ? LDMA_DIRECTION_RX
					 : flags == 2 ? LDMA_DIRECTION_TX
						      : LDMA_DIRECTION_UNKNOWN;
		} else if (option.code == EPB_DROPCOUNT && option.length == 8 &&
			   block->type == BLOCK_ENHANCED) {
			interface->lost =
				add_saturated(interface->lost, file64(file, option.value));
		}
	}
}

/* The enhanced packet block and its obsolete ancestor differ in their first word. */
static enum ldma_capfile_step take_packet(struct ldma_capfile *file, const struct block *block,
					  struct ldma_capfile_frame *ret)
{
	const uint8_t *p = block->body;
	bool old = block->type == BLOCK_PACKET;
	uint32_t id = old ? file16(file, p) : file32(file, p);
	struct ldma_capfile_interface *interface = find_interface(file, id);
	uint32_t captured = file32(file, p + 12), there = block->length - 20, padded;

	if (!interface)
		return no_interface(file, id);
	ret->bytes = p + 20;
	ret->time_ns = to_ns(interface, (uint64_t)file32(file, p + 4) << 32 | file32(file, p + 8));
	ret->link = interface->link;
	ret->interface = (uint32_t)(interface - file->interfaces);
	ret->direction = LDMA_DIRECTION_UNKNOWN;
	if (old && file16(file, p + 2) != 0xffff)
		interface->lost = add_saturated(interface->lost, file16(file, p + 2));
	if (captured <= there) {
		if (captured > LDMA_CAPFILE_FRAME_MAX)
			return ldma_capfile_too_large(file, captured);
		padded = (captured + 3) & ~3u;
		if (there - padded >= 4)
			take_packet_options(file, interface, block, 20 + padded, ret);
	} else if (there > LDMA_CAPFILE_FRAME_MAX) {
		there = LDMA_CAPFILE_FRAME_MAX;
	}
	ldma_capfile_set_lengths(file, ret, captured, file32(file, p + 16), there);
	return LDMA_CAPFILE_FRAME;
}

static enum ldma_capfile_step take_simple(struct ldma_capfile *file, const struct block *block,
					  struct ldma_capfile_frame *ret)
{
	struct ldma_capfile_interface *interface = find_interface(file, 0);
	uint32_t length = file32(file, block->body), there = block->length - 4;

	if (!interface)
		return no_interface(file, 0);
	if (there > LDMA_CAPFILE_FRAME_MAX)
		return ldma_capfile_too_large(file, there);
	ret->bytes = block->body + 4;
	ret->time_ns = 0; /* this block has no time */
	ret->link = interface->link;
	ret->interface = file->section_first;
	ret->direction = LDMA_DIRECTION_UNKNOWN;
	/* What was captured is the least of the length, the snap length and what is there (less padding). */
	ret->length = length;
	if (interface->snaplen && length > interface->snaplen)
		length = interface->snaplen;
	file->contradictions += length > there;
	ret->captured = length < there ? length : there;
	return LDMA_CAPFILE_FRAME;
}

/* Returns the smallest total length of a block that is read; 0: this type is not read. */
static uint32_t smallest(uint32_t type)
{
	switch (type) {
	case BLOCK_SECTION:
		return 28;
	case BLOCK_INTERFACE:
		return 20;
	case BLOCK_PACKET:
	case BLOCK_ENHANCED:
		return 32;
	case BLOCK_SIMPLE:
		return 16;
	case BLOCK_STATISTICS:
		return 24;
	}
	return 0;
}

static enum ldma_capfile_step check_back(struct ldma_capfile *file, uint32_t front, uint32_t back)
{
	return ldma_capfile_fail(file, "a block says %u bytes in front and %u behind (byte %llu)",
				 front, back, (unsigned long long)file->offset);
}

/* Skips a block that is not read, in whatever pieces it comes, so that its length does not matter. */
static enum ldma_capfile_step pass_over(struct ldma_capfile *file, const struct ldma_offer *offer,
					size_t *consumed)
{
	if (file->skip > 4) {
		if (!offer->available)
			return ldma_capfile_want(file, offer, 1, "a block");
		*consumed = file->skip - 4 < offer->available ? file->skip - 4 : offer->available;
		file->skip -= (uint32_t)*consumed;
		return LDMA_CAPFILE_SKIP;
	}
	if (offer->available < 4)
		return ldma_capfile_want(file, offer, 4, "a block");
	if (file32(file, offer->bytes) != file->skip_length)
		return check_back(file, file->skip_length, file32(file, offer->bytes));
	*consumed = 4;
	file->skip = 0;
	return LDMA_CAPFILE_SKIP;
}

static bool is_packet(uint32_t type)
{
	return type == BLOCK_ENHANCED || type == BLOCK_PACKET || type == BLOCK_SIMPLE;
}

/* Sets the byte order, which a section header says and every later block follows. */
static enum ldma_capfile_step set_order(struct ldma_capfile *file, const struct ldma_offer *offer)
{
	if (offer->available < 12)
		return ldma_capfile_want(file, offer, 12, "a section header");
	file->swapped = get32(offer->bytes + 8) == BYTE_ORDER_MAGIC;
	if (!file->swapped && get32le(offer->bytes + 8) != BYTE_ORDER_MAGIC)
		return ldma_capfile_fail(file, "a section header has byte order 0x%08x (byte %llu)",
					 get32(offer->bytes + 8),
					 (unsigned long long)file->offset + 8);
	return LDMA_CAPFILE_SKIP;
}

static enum ldma_capfile_step take(struct ldma_capfile *file, const struct block *block,
				   struct ldma_capfile_frame *ret)
{
	switch (block->type) {
	case BLOCK_SECTION:
		return take_section(file, block);
	case BLOCK_INTERFACE:
		return take_interface(file, block);
	case BLOCK_STATISTICS:
		return take_statistics(file, block);
	case BLOCK_SIMPLE:
		return take_simple(file, block, ret);
	}
	return take_packet(file, block, ret);
}

enum ldma_capfile_step ldma_pcapng_next(struct ldma_capfile *file, const struct ldma_offer *offer,
					struct ldma_capfile_frame *ret, size_t *consumed)
{
	enum ldma_capfile_step step;
	uint32_t total, least;
	struct block block;

	if (file->skip)
		return pass_over(file, offer, consumed);
	if (!offer->available && offer->at_end)
		return LDMA_CAPFILE_END;
	if (offer->available < FRONT_BYTES)
		return ldma_capfile_want(file, offer, FRONT_BYTES, "a block");
	block.type = file32(file, offer->bytes);
	if (block.type == BLOCK_SECTION) {
		step = set_order(file, offer);
		if (step != LDMA_CAPFILE_SKIP)
			return step;
	}
	total = file32(file, offer->bytes + 4);
	least = smallest(block.type);
	if (total < (least ? least : OVERHEAD_BYTES) || total % 4)
		return ldma_capfile_fail(file,
					 "a block has an impossible length of %u bytes (byte %llu)",
					 total, (unsigned long long)file->offset);
	if (!least) {
		file->skip = file->skip_length = total;
		return LDMA_CAPFILE_SKIP;
	}
	if (total > LDMA_CAPFILE_BLOCK_MAX)
		return is_packet(block.type)
			       ? ldma_capfile_too_large(file, total)
			       : ldma_capfile_fail(file, "a block claims %u bytes (byte %llu)",
						   total, (unsigned long long)file->offset);
	if (total > offer->available)
		return is_packet(block.type) ? ldma_capfile_want_packet(file, offer, total)
					     : ldma_capfile_want(file, offer, total, "a block");
	if (file32(file, offer->bytes + total - 4) != total)
		return check_back(file, total, file32(file, offer->bytes + total - 4));
	block.body = offer->bytes + FRONT_BYTES;
	block.length = total - OVERHEAD_BYTES;
	step = take(file, &block, ret);
	if (step != LDMA_CAPFILE_ERROR)
		*consumed = total;
	return step;
}
