/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints packets as lines of JSON or of text: one line per packet, with its newline and no terminating NUL. The
 * caller's buffer has room for LDMA_LINE_MAX characters and what is inside. No state is kept. */
#ifndef LDMA_PRINT_H
#define LDMA_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/packet.h"

/* What was found inside a packet, ready to print: members of a JSON object ("\"cm\":{…}"), or a phrase of text. */
struct ldma_inside {
	const char *text;
	size_t length;
};

/* No line is longer than this plus the length of what is inside. */
#define LDMA_LINE_MAX 2048

struct ldma_text_style {
	bool color;
	uint64_t start_ns; /* times are printed relative to this */
};

/* n is the packet's number, from 1. inside may be NULL. Returns the number of characters. */
size_t ldma_print_json(const struct ldma_packet *packet, uint64_t n,
		       const struct ldma_inside *inside, char *buf);
size_t ldma_print_text(const struct ldma_packet *packet, const struct ldma_text_style *style,
		       const struct ldma_inside *inside, char *buf);

/* Writes an address as text, without a terminating NUL. ip_version is 4 or 6. buf has room for 46 characters; returns
 * how many it used. */
size_t ldma_print_address(const uint8_t *address, uint8_t ip_version, char *buf);

/* Writes "RC WRITE FIRST" for RC_RDMA_WRITE_FIRST, with "+IMM" and "+INV" for immediate and invalidate. At most 40
 * characters; returns how many. */
size_t ldma_print_opcode(uint8_t opcode, char *buf);

#endif
