/* SPDX-License-Identifier: BSD-2-Clause */
/* The change attribute of files: ctime in nanoseconds, plus how often they were changed within that tick of the clock.
 *
 * It remembers the files changed lately, in sets of four. A file that it forgets leaves its count to its set, so that
 * no value comes twice for different contents. Any thread may use it. */
#ifndef LDMA_CHANGES_H
#define LDMA_CHANGES_H

#include <stdint.h>

#include "base/lock.h"

#define LDMA_CHANGES_SETS 1024
#define LDMA_CHANGES_WAYS 4

struct ldma_change {
	uint64_t device, inode, ctime_ns, bumps; /* bumps 0: the entry is free */
};

struct ldma_change_set {
	struct ldma_lock lock;
	uint32_t oldest;
	uint64_t forgotten_ns, forgotten_bumps; /* the highest of forgotten files */
	struct ldma_change ways[LDMA_CHANGES_WAYS];
};

struct ldma_changes {
	struct ldma_change_set sets[LDMA_CHANGES_SETS];
};

/* Notes a change of the file, which has this ctime now. Returns its change attribute. */
uint64_t ldma_changes_bump(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			   uint64_t ctime_ns);

uint64_t ldma_changes_value(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			    uint64_t ctime_ns);

#endif
