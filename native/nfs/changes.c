/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/changes.h"

#include <stddef.h>

#include "base/hash.h"

static struct ldma_change_set *set_of(struct ldma_changes *changes, uint64_t device, uint64_t inode)
{
	return &changes->sets[ldma_hash_mix(ldma_hash_mix(inode) ^ device) % LDMA_CHANGES_SETS];
}

static struct ldma_change *look(struct ldma_change_set *set, uint64_t device, uint64_t inode)
{
	for (uint32_t i = 0; i < LDMA_CHANGES_WAYS; i++) {
		struct ldma_change *change = &set->ways[i];

		if (change->bumps && change->inode == inode && change->device == device)
			return change;
	}
	return NULL;
}

/* Returns how often a file that is not remembered may have been changed in this tick. */
static uint64_t least_bumps(const struct ldma_change_set *set, uint64_t ctime_ns)
{
	return ctime_ns <= set->forgotten_ns ? set->forgotten_bumps : 0;
}

static struct ldma_change *replace(struct ldma_change_set *set)
{
	struct ldma_change *change = &set->ways[set->oldest++ % LDMA_CHANGES_WAYS];

	if (change->bumps && set->forgotten_ns < change->ctime_ns)
		set->forgotten_ns = change->ctime_ns;
	if (set->forgotten_bumps < change->bumps)
		set->forgotten_bumps = change->bumps;
	return change;
}

uint64_t ldma_changes_bump(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			   uint64_t ctime_ns)
{
	struct ldma_change_set *set = set_of(changes, device, inode);
	struct ldma_change *change;
	uint64_t value;

	ldma_lock(&set->lock);
	change = look(set, device, inode);
	if (!change) {
		change = replace(set);
		*change = (struct ldma_change){device, inode, ctime_ns, least_bumps(set, ctime_ns)};
	}
	/* The count is for one ctime. After a clock was set back, values may come again. */
	if (change->ctime_ns != ctime_ns)
		*change = (struct ldma_change){device, inode, ctime_ns, 0};
	value = ctime_ns + ++change->bumps;
	ldma_unlock(&set->lock);
	return value;
}

uint64_t ldma_changes_value(struct ldma_changes *changes, uint64_t device, uint64_t inode,
			    uint64_t ctime_ns)
{
	struct ldma_change_set *set = set_of(changes, device, inode);
	const struct ldma_change *change;
	uint64_t bumps;

	ldma_lock(&set->lock);
	change = look(set, device, inode);
	if (change)
		bumps = change->ctime_ns == ctime_ns ? change->bumps : 0;
	else
		bumps = least_bumps(set, ctime_ns);
	ldma_unlock(&set->lock);
	return ctime_ns + bumps;
}
