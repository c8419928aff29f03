/* SPDX-License-Identifier: BSD-2-Clause */
#include "capture/pcapng_write.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/packet.h"

#define TEXT_MAX 255

/* A block under construction; ok turns false once something did not fit. */
struct writer {
	uint8_t *buf;
	size_t size, used;
	bool ok;
};

static uint8_t *reserve(struct writer *writer, size_t bytes)
{
	uint8_t *p = writer->buf + writer->used;

	if (!writer->ok || bytes > writer->size - writer->used) {
		writer->ok = false;
		return NULL;
	}
	writer->used += bytes;
	return p;
}

static void write32(struct writer *writer, uint32_t value)
{
	uint8_t *p = reserve(writer, 4);

	if (p)
		put32le(p, value);
}

/* pcapng stores a time as its upper half, then its lower half. */
static void write_time(struct writer *writer, uint64_t time_ns)
{
	write32(writer, (uint32_t)(time_ns >> 32));
	write32(writer, (uint32_t)time_ns);
}

static void write_padded(struct writer *writer, const void *bytes, size_t length)
{
	size_t pad = -length & 3;
	uint8_t *p = reserve(writer, length + pad);

	if (!p)
		return;
	memcpy(p, bytes, length);
	memset(p + length, 0, pad);
}

static void write_option(struct writer *writer, uint16_t code, const void *value, size_t length)
{
	write32(writer, code | (uint32_t)length << 16);
	write_padded(writer, value, length);
}

static void write_text(struct writer *writer, uint16_t code, const char *text)
{
	size_t length = text ? strnlen(text, TEXT_MAX) : 0;

	if (length)
		write_option(writer, code, text, length);
}

static struct writer start(uint8_t *buf, size_t size, uint32_t type)
{
	struct writer writer = {buf, size, 0, true};

	write32(&writer, type);
	write32(&writer, 0); /* the length, which is known at the end */
	return writer;
}

static size_t finish(struct writer *writer)
{
	uint32_t total = (uint32_t)writer->used + 4;

	write32(writer, total);
	if (!writer->ok)
		return 0;
	put32le(writer->buf + 4, total);
	return total;
}

size_t ldma_pcapng_section(uint8_t *buf, size_t size, const char *hardware, const char *os,
			   const char *application)
{
	struct writer writer = start(buf, size, 0x0a0d0d0a);

	write32(&writer, 0x1a2b3c4d);
	write32(&writer, 1); /* version 1.0 */
	write32(&writer, UINT32_MAX);
	write32(&writer, UINT32_MAX); /* the section's length is not said */
	write_text(&writer, 2, hardware);
	write_text(&writer, 3, os);
	write_text(&writer, 4, application);
	write32(&writer, 0);
	return finish(&writer);
}

size_t ldma_pcapng_interface(uint8_t *buf, size_t size, uint16_t link, uint32_t snaplen,
			     const char *name)
{
	static const uint8_t nanoseconds = 9;
	struct writer writer = start(buf, size, 1);

	write32(&writer, link);
	write32(&writer, snaplen);
	write_text(&writer, 2, name);
	write_option(&writer, 9, &nanoseconds, 1);
	write32(&writer, 0);
	return finish(&writer);
}

size_t ldma_pcapng_packet(uint8_t *buf, size_t size, const struct ldma_pcapng_packet *packet)
{
	uint32_t padded = (packet->captured + 3) & ~3u, total;
	bool has_direction = packet->direction != LDMA_DIRECTION_UNKNOWN;
	uint8_t *p = buf + 28;

	/* Written without the writer: only this block comes millions of times. */
	total = 32 + (has_direction ? 12 : 0);
	if (packet->captured > UINT32_MAX - LDMA_PCAPNG_PACKET_OVERHEAD || size < total ||
	    padded > size - total)
		return 0;
	total += padded;
	put32le(buf, 6);
	put32le(buf + 4, total);
	put32le(buf + 8, packet->interface);
	put32le(buf + 12, (uint32_t)(packet->time_ns >> 32));
	put32le(buf + 16, (uint32_t)packet->time_ns);
	put32le(buf + 20, packet->captured);
	put32le(buf + 24, packet->length);
	memset(p + padded - (padded ? 4 : 0), 0, padded ? 4 : 0);
	memcpy(p, packet->frame, packet->captured);
	p += padded;
	if (has_direction) {
		put32le(p, 2 | 4u << 16); /* epb_flags */
		put32le(p + 4, packet->direction == LDMA_DIRECTION_RX ? 1 : 2);
		put32le(p + 8, 0);
		p += 12;
	}
	put32le(p, total);
	return total;
}

static void write_time_option(struct writer *writer, uint16_t code, uint64_t time_ns)
{
	if (!time_ns)
		return;
	write32(writer, code | 8u << 16);
	write_time(writer, time_ns);
}

size_t ldma_pcapng_statistics(uint8_t *buf, size_t size,
			      const struct ldma_pcapng_statistics *statistics)
{
	struct writer writer = start(buf, size, 5);

	write32(&writer, statistics->interface);
	write_time(&writer, statistics->time_ns);
	write_time_option(&writer, 2, statistics->start_ns);
	write_time_option(&writer, 3, statistics->end_ns);
	write_option(&writer, 4, &statistics->received, 8);
	write_option(&writer, 5, &statistics->dropped, 8);
	write_option(&writer, 7, &statistics->dropped_later, 8);
	write32(&writer, 0);
	return finish(&writer);
}
