/* The change attribute of files: ctime in nanoseconds, plus how often they were changed within that tick of the clock.
 *
 * Remembers those changed lately, in sets of four; what it forgets leaves its count to its set, so that no value
 * comes twice for different contents. Any thread may use it. */
#ifndef LDMA_CHANGES_H
#define LDMA_CHANGES_H

#include <stdint.h>

#include "lock.h"

#define LDMA_CHANGES_SETS 1024
#define LDMA_CHANGES_WAYS 4

struct ldma_change {
	uint64_t device, inode, ctime_ns, bumps; /* bumps 0: nothing is here */
};

struct ldma_change_set {
	struct ldma_lock lock;
	uint32_t oldest;
	uint64_t forgotten_ns, forgotten_bumps; /* the most of what was forgotten */
	struct ldma_change ways[LDMA_CHANGES_WAYS];
};

struct ldma_changes {
	struct ldma_change_set sets[LDMA_CHANGES_SETS];
};

/* The file was changed, and its ctime is now this one. Its change attribute. */
uint64_t ldma_changes_bump(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			   uint64_t ctime_ns);

uint64_t ldma_changes_value(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			    uint64_t ctime_ns);

#endif
