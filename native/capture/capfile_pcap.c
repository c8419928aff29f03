/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/bytes.h"
#include "capture/capfile_format.h"

#define HEADER_BYTES 24
#define RECORD_BYTES 16
#define RECORD_BYTES_MODIFIED 24 /* Kuznetzov's: with interface index, protocol and packet type */
#define PACKET_OUTGOING 4

static const struct variant {
	uint32_t magic;
	uint32_t fraction_ns;
	uint8_t record;
} variants[] = {
	{0xa1b2c3d4, 1000, RECORD_BYTES},
	{0xa1b23c4d, 1, RECORD_BYTES},
	{0xa1b2cd34, 1000, RECORD_BYTES_MODIFIED},
};

static const struct variant *find_variant(const uint8_t *bytes, bool *swapped)
{
	for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
		*swapped = get32(bytes) == variants[i].magic;
		if (*swapped || get32le(bytes) == variants[i].magic)
			return &variants[i];
	}
	return NULL;
}

bool ldma_pcap_is(const uint8_t *bytes)
{
	bool swapped;

	return find_variant(bytes, &swapped) != NULL;
}

enum ldma_capfile_step ldma_pcap_header(struct ldma_capfile *file, const struct ldma_offer *offer,
					size_t *consumed)
{
	const uint8_t *p = offer->bytes;
	const struct variant *variant;

	if (offer->available < HEADER_BYTES)
		return ldma_capfile_want(file, offer, HEADER_BYTES, "the file header");
	variant = find_variant(p, &file->swapped);
	file->fraction_ns = variant->fraction_ns;
	file->record = variant->record;
	if (file16(file, p + 4) != 2)
		return ldma_capfile_fail(file, "pcap version %u.%u is unknown (byte 4)",
					 file16(file, p + 4), file16(file, p + 6));
	/* The upper bits of the link type say how long a frame check sequence is. */
	if (!ldma_capfile_add_interface(file, file32(file, p + 20) & 0x03ffffff,
					file32(file, p + 16)))
		return LDMA_CAPFILE_ERROR;
	file->format = LDMA_CAPFILE_PCAP;
	*consumed = HEADER_BYTES;
	return LDMA_CAPFILE_SKIP;
}

enum ldma_capfile_step ldma_pcap_next(struct ldma_capfile *file, const struct ldma_offer *offer,
				      struct ldma_capfile_frame *ret, size_t *consumed)
{
	const uint8_t *p = offer->bytes;
	uint32_t captured;

	if (!offer->available && offer->at_end)
		return LDMA_CAPFILE_END;
	if (offer->available < file->record)
		return ldma_capfile_want_packet(file, offer, file->record);
	captured = file32(file, p + 8);
	if (captured > LDMA_CAPFILE_FRAME_MAX)
		return ldma_capfile_too_large(file, captured);
	if (captured > offer->available - file->record)
		return ldma_capfile_want_packet(file, offer, file->record + captured);

	ret->bytes = p + file->record;
	ret->time_ns = file32(file, p) * UINT64_C(1000000000) +
		       (uint64_t)file32(file, p + 4) * file->fraction_ns;
	ret->link = file->interfaces[0].link;
	ret->interface = 0;
	ret->direction = LDMA_DIRECTION_UNKNOWN;
	if (file->record == RECORD_BYTES_MODIFIED)
		ret->direction = p[22] == PACKET_OUTGOING ? LDMA_DIRECTION_TX : LDMA_DIRECTION_RX;
	ldma_capfile_set_lengths(file, ret, captured, file32(file, p + 12), captured);
	*consumed = file->record + captured;
	return LDMA_CAPFILE_FRAME;
}
