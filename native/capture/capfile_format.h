/* SPDX-License-Identifier: BSD-2-Clause */
/* What the readers of the two capture file formats share; private to capfile*.c. */
#ifndef LDMA_CAPFILE_FORMAT_H
#define LDMA_CAPFILE_FORMAT_H

#include <string.h>

#include "capture/capfile.h"

/* The bytes that the caller offered to ldma_capfile_next. */
struct ldma_offer {
	const uint8_t *bytes;
	size_t available;
	bool at_end;
};

static inline uint16_t file16(const struct ldma_capfile *file, const uint8_t *p)
{
	uint16_t v;
	memcpy(&v, p, sizeof(v));
	return file->swapped ? __builtin_bswap16(v) : v;
}

static inline uint32_t file32(const struct ldma_capfile *file, const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, sizeof(v));
	return file->swapped ? __builtin_bswap32(v) : v;
}

static inline uint64_t file64(const struct ldma_capfile *file, const uint8_t *p)
{
	uint64_t v;
	memcpy(&v, p, sizeof(v));
	return file->swapped ? __builtin_bswap64(v) : v;
}

/* Ends the reading with a sentence that says why. Returns LDMA_CAPFILE_ERROR. */
enum ldma_capfile_step ldma_capfile_fail(struct ldma_capfile *file, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Asks for `need` bytes, or says that the file ends inside `what` ("packet 12") if no more will come. */
enum ldma_capfile_step ldma_capfile_want(struct ldma_capfile *file, const struct ldma_offer *offer,
					 size_t need, const char *what);
/* Does the same inside the next packet. */
enum ldma_capfile_step ldma_capfile_want_packet(struct ldma_capfile *file,
						const struct ldma_offer *offer, size_t need);
/* Fails because the next packet claims more bytes than any frame has. */
enum ldma_capfile_step ldma_capfile_too_large(struct ldma_capfile *file, uint32_t claim);

/* Adds an interface with microsecond times and returns it, or NULL after it has reported the failure. */
struct ldma_capfile_interface *ldma_capfile_add_interface(struct ldma_capfile *file, uint32_t link,
							  uint32_t snaplen);

/* Fills in captured and length so that captured <= length and captured <= there; counts contradictions. */
void ldma_capfile_set_lengths(struct ldma_capfile *file, struct ldma_capfile_frame *frame,
			      uint32_t captured, uint32_t length, uint32_t there);

/* Take the file header of a pcap file, whose magic was recognised, and then its records. */
enum ldma_capfile_step ldma_pcap_header(struct ldma_capfile *file, const struct ldma_offer *offer,
					size_t *consumed);
enum ldma_capfile_step ldma_pcap_next(struct ldma_capfile *file, const struct ldma_offer *offer,
				      struct ldma_capfile_frame *ret, size_t *consumed);
/* Returns whether the bytes start like a pcap file (4 bytes are read). */
bool ldma_pcap_is(const uint8_t *bytes);

enum ldma_capfile_step ldma_pcapng_next(struct ldma_capfile *file, const struct ldma_offer *offer,
					struct ldma_capfile_frame *ret, size_t *consumed);
bool ldma_pcapng_is(const uint8_t *bytes);

#endif
