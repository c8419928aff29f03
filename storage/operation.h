/* One call that was taken, from its slot to its reply. */
#ifndef LDMA_OPERATION_H
#define LDMA_OPERATION_H

#include "accelerator.h"
#include "compound.h"

#define LDMA_INLINE_MAX 4096 /* data of a READ within the reply itself */

/* A piece of the data, and the storage call for it. */
struct ldma_part {
	struct ldma_work work; /* first */
	struct ldma_operation *operation;
	struct ldma_part *next;   /* of those to be written */
	struct ldma_piece *piece; /* NULL: the memory is not a piece's */
	uint8_t *memory;
	uint64_t offset; /* within the data */
	uint32_t length, done;
	uint64_t begun_ns;
};

struct ldma_operation {
	struct ldma_operation *next; /* while it is free */
	struct ldma_accelerator *accelerator;
	struct ldma_call *call;
	struct ldma_slots *slots;
	struct ldma_grant *grant;
	struct ldma_compound compound;
	bool is_inline;
	uint64_t verifier; /* when it began */
	uint64_t ended_ns; /* atomic: when a part ended last, or when it came */

	struct ldma_lock lock; /* guards what is below */
	uint64_t total;        /* bytes to move; falls where a file turns out to be shorter */
	uint64_t next_offset;  /* of what was not yet asked for */
	uint32_t free_parts;   /* bits */
	bool is_advancing;     /* some thread is looking what is next */
	bool is_short;         /* the file ended */
	bool is_lost;          /* the connection went */
	bool needs_sync;       /* once all is written */
	bool has_writer;       /* a worker, which writes these, too: */
	struct ldma_part *to_write;
	int error;        /* the first one */
	struct stat stat; /* a READ's: before it began */
	struct ldma_part parts[LDMA_CALL_PIECES];

	uint8_t reply[LDMA_COMPOUND_REPLY_MAX + LDMA_INLINE_MAX];
};

/* Begins it: call, slots, grant, compound, is_inline and total are set, and for a READ stat. */
void ldma_operation_begin(struct ldma_operation *operation);

/* To the accelerator's. */
void ldma_operation_free(struct ldma_operation *operation);

#endif
