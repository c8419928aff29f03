/* SPDX-License-Identifier: BSD-2-Clause */
/* A reader of capture files, pcap and pcapng. It is sans-I/O: the caller owns a buffer, offers what is in it and drops
 * what was consumed. One thread at a time uses a reader.
 *
 * Nothing in a file is trusted: no length is followed before it was checked, and memory grows only with interface
 * blocks that are really there, up to a fixed limit. How the bytes are cut into calls does not change what is read from
 * them.
 */
#ifndef LDMA_CAPFILE_H
#define LDMA_CAPFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/batch.h"

#define LDMA_CAPFILE_FRAME_MAX (256u << 10) /* the most that tcpdump and dumpcap capture */
/* the most bytes of a block that must be seen whole: a frame and its options */
#define LDMA_CAPFILE_BLOCK_MAX (512u << 10)
#define LDMA_CAPFILE_INTERFACES_MAX 4096
#define LDMA_CAPFILE_UNSAID UINT64_MAX /* a count that the file does not give */

enum ldma_capfile_step {
	LDMA_CAPFILE_FRAME, /* ret holds a frame */
	LDMA_CAPFILE_SKIP,  /* something that is no frame was passed over */
	LDMA_CAPFILE_NEED,  /* the caller offers at least ldma_capfile.need bytes from here on */
	LDMA_CAPFILE_FULL,  /* ldma_capfile_fill only: the batch has no room */
	LDMA_CAPFILE_END,   /* the file ends here, as it should */
	LDMA_CAPFILE_ERROR, /* the reading is over; ldma_capfile.error says why */
};

enum ldma_capfile_format { LDMA_CAPFILE_UNKNOWN, LDMA_CAPFILE_PCAP, LDMA_CAPFILE_PCAPNG };

struct ldma_capfile_interface {
	uint32_t link;    /* enum ldma_link, or any other type */
	uint32_t snaplen; /* 0: none */
	uint64_t frames;
	uint64_t received; /* this and dropped: by its last statistics, or LDMA_CAPFILE_UNSAID */
	uint64_t dropped;
	uint64_t lost; /* added up from the packets' own drop counts */
	/* time_ns = (units * multiplier / divisor >> shift) + offset_s * 10^9; divisor 0: every time is 0 */
	uint64_t multiplier, divisor;
	int64_t offset_s;
	uint8_t shift;
	char name[63]; /* "" if the file does not say */
};

/* A reader. The caller may read all fields; only the functions below change them. */
struct ldma_capfile {
	enum ldma_capfile_format format;
	uint64_t offset; /* in the file, of the next byte to be consumed */
	uint64_t frames;
	uint64_t
		contradictions; /* frames whose lengths contradict each other, cut to what is there */
	size_t need;            /* after LDMA_CAPFILE_NEED; at most LDMA_CAPFILE_BLOCK_MAX */
	char error[160];        /* one sentence; empty unless LDMA_CAPFILE_ERROR was returned */

	bool swapped; /* the file (the section, for pcapng) is big-endian */
	bool failed;
	uint8_t record;       /* pcap: bytes of a record's header */
	uint32_t fraction_ns; /* pcap: the unit of the time's second field */
	uint32_t skip,
		skip_length; /* pcapng: bytes of a block still to pass over, and its length */

	struct ldma_capfile_interface *interfaces; /* of all sections; a pcap file has one */
	uint32_t interface_count, interface_capacity;
	uint32_t section_first; /* the current section's interface 0 */
};

struct ldma_capfile_frame {
	const uint8_t *bytes; /* in what the caller offered */
	uint64_t time_ns;
	uint32_t captured; /* at bytes; <= length */
	uint32_t length;
	uint32_t link;
	uint32_t interface; /* index into ldma_capfile.interfaces */
	uint8_t direction;  /* enum ldma_direction */
};

void ldma_capfile_init(struct ldma_capfile *file);
void ldma_capfile_destroy(
	struct ldma_capfile *file); /* frees what init made; a second call has no effect */

/* Takes the next step. at_end: the file has no more than what is offered. ret is set for LDMA_CAPFILE_FRAME only.
 * The caller drops *consumed bytes once it is done with the frame, which lies in them; for NEED, END and ERROR that is
 * 0. A frame is delivered only when all of its record was there; a file that breaks off gives its whole frames and then
 * an error. */
enum ldma_capfile_step ldma_capfile_next(struct ldma_capfile *file, const uint8_t *bytes,
					 size_t available, bool at_end,
					 struct ldma_capfile_frame *ret, size_t *consumed);

/* Decodes frames into the batch, without copying them, until it is full or there is nothing left to take. Returns
 * FULL, NEED, END or ERROR; the batch may hold packets in each case. */
enum ldma_capfile_step ldma_capfile_fill(struct ldma_capfile *file, struct ldma_batch *batch,
					 const uint8_t *bytes, size_t available, bool at_end,
					 size_t *consumed);

/* Returns how many frames the capturing side dropped, as far as the file says: by interface statistics where there are
 * some, else by the packets' own counts. */
uint64_t ldma_capfile_dropped(const struct ldma_capfile *file);

/* Returns whether ldma_packet_decode knows the link type. Frames of other types are delivered and are never RoCE. */
bool ldma_link_is_known(uint32_t link);

#endif
