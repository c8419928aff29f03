/* SPDX-License-Identifier: BSD-2-Clause */
/* Builds the blocks of a pcapng file (draft-ietf-opsawg-pcapng), little-endian, with nanosecond times; the caller
 * writes them. No state is kept.
 *
 * Each function writes one block to buf and returns its length, or 0 if size bytes are too few (buf is then
 * unspecified). A file is one section header, its interfaces, packets, and at the end statistics per interface. */
#ifndef LDMA_PCAPNG_WRITE_H
#define LDMA_PCAPNG_WRITE_H

#include <stddef.h>
#include <stdint.h>

/* The most bytes of a packet block besides its frame, padding and direction included. */
#define LDMA_PCAPNG_PACKET_OVERHEAD 48

/* Texts may be NULL or empty (left out) and are cut to 255 bytes. */
size_t ldma_pcapng_section(uint8_t *buf, size_t size, const char *hardware, const char *os,
			   const char *application);
size_t ldma_pcapng_interface(uint8_t *buf, size_t size, uint16_t link, uint32_t snaplen,
			     const char *name);

struct ldma_pcapng_packet {
	const uint8_t *frame;
	uint64_t time_ns;
	uint32_t interface; /* counted from 0 in the order of the interface blocks */
	uint32_t captured, length;
	uint8_t direction; /* enum ldma_direction; written unless unknown */
};

size_t ldma_pcapng_packet(uint8_t *buf, size_t size, const struct ldma_pcapng_packet *packet);

struct ldma_pcapng_statistics {
	uint32_t interface;
	uint64_t time_ns;           /* of the counts */
	uint64_t start_ns, end_ns;  /* of the capture; 0: left out */
	uint64_t received, dropped; /* by the interface */
	uint64_t dropped_later;     /* after the interface, for want of buffers */
};

size_t ldma_pcapng_statistics(uint8_t *buf, size_t size,
			      const struct ldma_pcapng_statistics *statistics);

#endif
