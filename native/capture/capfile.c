/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/capfile.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "capture/capfile_format.h"

void ldma_capfile_init(struct ldma_capfile *file)
{
	memset(file, 0, sizeof(*file));
}

void ldma_capfile_destroy(struct ldma_capfile *file)
{
	free(file->interfaces);
	ldma_capfile_init(file);
}

enum ldma_capfile_step ldma_capfile_fail(struct ldma_capfile *file, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(file->error, sizeof(file->error), format, args);
	va_end(args);
	file->failed = true;
	return LDMA_CAPFILE_ERROR;
}

enum ldma_capfile_step ldma_capfile_want(struct ldma_capfile *file, const struct ldma_offer *offer,
					 size_t need, const char *what)
{
	if (offer->at_end)
		return ldma_capfile_fail(file, "file ends inside %s (byte %llu)", what,
					 (unsigned long long)(file->offset + offer->available));
	file->need = need;
	return LDMA_CAPFILE_NEED;
}

enum ldma_capfile_step ldma_capfile_want_packet(struct ldma_capfile *file,
						const struct ldma_offer *offer, size_t need)
{
	char what[32] = "";

	if (offer->at_end)
		snprintf(what, sizeof(what), "packet %llu", (unsigned long long)file->frames + 1);
	return ldma_capfile_want(file, offer, need, what);
}

enum ldma_capfile_step ldma_capfile_too_large(struct ldma_capfile *file, uint32_t claim)
{
	return ldma_capfile_fail(file,
				 "packet %llu claims %.*f %s, more than any frame (byte %llu)",
				 (unsigned long long)file->frames + 1, claim < 1000000 ? 0 : 1,
				 claim < 1000000      ? claim
				 : claim < 1000000000 ? claim / 1e6
						      : claim / 1e9,
				 claim < 1000000      ? "bytes"
				 : claim < 1000000000 ? "MB"
						      : "GB",
				 (unsigned long long)file->offset);
}

struct ldma_capfile_interface *ldma_capfile_add_interface(struct ldma_capfile *file, uint32_t link,
							  uint32_t snaplen)
{
	struct ldma_capfile_interface *interface;

	if (file->interface_count == LDMA_CAPFILE_INTERFACES_MAX) {
		ldma_capfile_fail(file, "more than %d interfaces (byte %llu)",
				  LDMA_CAPFILE_INTERFACES_MAX, (unsigned long long)file->offset);
		return NULL;
	}
	if (file->interface_count == file->interface_capacity) {
		uint32_t capacity = file->interface_capacity ? file->interface_capacity * 2 : 4;

		interface = realloc(file->interfaces, capacity * sizeof(*interface));
		if (!interface) {
			ldma_capfile_fail(file, "no memory for %u interfaces", capacity);
			return NULL;
		}
		file->interfaces = interface;
		file->interface_capacity = capacity;
	}
	interface = &file->interfaces[file->interface_count++];
	memset(interface, 0, sizeof(*interface));
	interface->link = link;
	interface->snaplen = snaplen;
	interface->received = interface->dropped = LDMA_CAPFILE_UNSAID;
	interface->multiplier = 1000;
	interface->divisor = 1;
	return interface;
}

void ldma_capfile_set_lengths(struct ldma_capfile *file, struct ldma_capfile_frame *frame,
			      uint32_t captured, uint32_t length, uint32_t there)
{
	file->contradictions += captured > length || captured > there;
	if (captured > length)
		captured = length;
	frame->captured = captured < there ? captured : there;
	frame->length = length;
}

static enum ldma_capfile_step refuse(struct ldma_capfile *file, const uint8_t *bytes, size_t count)
{
	static const struct {
		const char *magic, *name, *command;
		size_t length;
	} compressed[] = {
		{"\x1f\x8b", "gzip", "zcat", 2},
		{"\x28\xb5\x2f\xfd", "zstd", "zstdcat", 4},
		{"\xfd\x37\x7a\x58", "xz", "xzcat", 4},
		{"BZh", "bzip2", "bzcat", 3},
		{"\x04\x22\x4d\x18", "lz4", "lz4cat", 4},
	};
	char start[16] = "";

	for (size_t i = 0; i < sizeof(compressed) / sizeof(compressed[0]); i++) {
		if (count >= compressed[i].length &&
		    !memcmp(bytes, compressed[i].magic, compressed[i].length))
			return ldma_capfile_fail(file,
						 "compressed (%s): use %s FILE | livedma decode -",
						 compressed[i].name, compressed[i].command);
	}
	if (!count)
		return ldma_capfile_fail(file, "not a pcap or pcapng file (it is empty)");
	for (size_t i = 0; i < count; i++)
		snprintf(start + 3 * i, sizeof(start) - 3 * i, "%02x ", bytes[i]);
	start[3 * count - 1] = 0;
	return ldma_capfile_fail(file, "not a pcap or pcapng file (starts with %s)", start);
}

static enum ldma_capfile_step recognise(struct ldma_capfile *file, const struct ldma_offer *offer,
					size_t *consumed)
{
	if (offer->available < 4) {
		if (offer->at_end)
			return refuse(file, offer->bytes, offer->available);
		file->need = 4;
		return LDMA_CAPFILE_NEED;
	}
	if (ldma_pcap_is(offer->bytes))
		return ldma_pcap_header(file, offer, consumed);
	if (!ldma_pcapng_is(offer->bytes))
		return refuse(file, offer->bytes, 4);
	file->format = LDMA_CAPFILE_PCAPNG;
	return LDMA_CAPFILE_SKIP;
}

enum ldma_capfile_step ldma_capfile_next(struct ldma_capfile *file, const uint8_t *bytes,
					 size_t available, bool at_end,
					 struct ldma_capfile_frame *ret, size_t *consumed)
{
	const struct ldma_offer offer = {bytes, available, at_end};
	enum ldma_capfile_step step;

	*consumed = 0;
	if (file->failed)
		return LDMA_CAPFILE_ERROR;
	if (file->format == LDMA_CAPFILE_PCAP)
		step = ldma_pcap_next(file, &offer, ret, consumed);
	else if (file->format == LDMA_CAPFILE_PCAPNG)
		step = ldma_pcapng_next(file, &offer, ret, consumed);
	else
		step = recognise(file, &offer, consumed);
	file->offset += *consumed;
	if (step == LDMA_CAPFILE_FRAME) {
		file->frames++;
		file->interfaces[ret->interface].frames++;
	}
	return step;
}

/* Reads the common case, a little-endian pcap file, without a call per record. It takes only whole and consistent
 * records and leaves every other to ldma_capfile_next. Returns what it consumed. */
static size_t fill_plain(struct ldma_capfile *file, struct ldma_batch *batch, const uint8_t *bytes,
			 size_t available)
{
	const uint32_t link = file->interfaces[0].link, fraction_ns = file->fraction_ns;
	size_t pos = 0;
	uint64_t frames = 0;

	while (batch->count < batch->capacity && available - pos >= 16) {
		const uint8_t *p = bytes + pos;
		uint32_t captured = get32le(p + 8), length = get32le(p + 12);

		if (captured > LDMA_CAPFILE_FRAME_MAX || captured > available - pos - 16 ||
		    captured > length)
			break;
		ldma_batch_add(batch, link,
			       get32le(p) * UINT64_C(1000000000) +
				       (uint64_t)get32le(p + 4) * fraction_ns,
			       LDMA_DIRECTION_UNKNOWN, p + 16, captured, length);
		pos += 16 + captured;
		frames++;
	}
	file->offset += pos;
	file->frames += frames;
	file->interfaces[0].frames += frames;
	return pos;
}

enum ldma_capfile_step ldma_capfile_fill(struct ldma_capfile *file, struct ldma_batch *batch,
					 const uint8_t *bytes, size_t available, bool at_end,
					 size_t *consumed)
{
	enum ldma_capfile_step step;
	struct ldma_capfile_frame frame;
	size_t pos = 0, used;

	do {
		if (file->format == LDMA_CAPFILE_PCAP && !file->swapped && file->record == 16 &&
		    !file->failed)
			pos += fill_plain(file, batch, bytes + pos, available - pos);
		if (batch->count == batch->capacity) {
			step = LDMA_CAPFILE_FULL;
			break;
		}
		step = ldma_capfile_next(file, bytes + pos, available - pos, at_end, &frame, &used);
		pos += used;
		if (step == LDMA_CAPFILE_FRAME)
			ldma_batch_add(batch, frame.link, frame.time_ns, frame.direction,
				       frame.bytes, frame.captured, frame.length);
	} while (step == LDMA_CAPFILE_FRAME || step == LDMA_CAPFILE_SKIP);
	*consumed = pos;
	return step;
}

uint64_t ldma_capfile_dropped(const struct ldma_capfile *file)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < file->interface_count; i++) {
		const struct ldma_capfile_interface *interface = &file->interfaces[i];

		sum += interface->dropped != LDMA_CAPFILE_UNSAID ? interface->dropped
								 : interface->lost;
	}
	return sum;
}

bool ldma_link_is_known(uint32_t link)
{
	switch (link) {
	case LDMA_LINK_NULL:
	case LDMA_LINK_ETHERNET:
	case LDMA_LINK_RAW_BSD:
	case LDMA_LINK_RAW_OPENBSD:
	case LDMA_LINK_RAW:
	case LDMA_LINK_LOOP:
	case LDMA_LINK_SLL:
	case LDMA_LINK_IPV4:
	case LDMA_LINK_IPV6:
	case LDMA_LINK_SLL2:
		return true;
	}
	return false;
}
