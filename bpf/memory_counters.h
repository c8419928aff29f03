/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The counters of memory.bpf.c: one struct per CPU, which user space adds up. */
#ifndef LDMA_MEMORY_COUNTERS_H
#define LDMA_MEMORY_COUNTERS_H

#include <linux/types.h>

/* How a run of compaction through a zone ended. The kernel's own numbers differ between versions. */
enum ldma_compaction_end {
	LDMA_COMPACTION_SUCCESS, /* there is a block of the size that was asked for */
	LDMA_COMPACTION_WHOLE_ZONE, /* the zone, or its part that was worth it, was scanned; no such block */
	LDMA_COMPACTION_CONTENDED, /* gave up: a lock, a signal, or another task's turn */
	LDMA_COMPACTION_OTHER,
	LDMA_COMPACTION_ENDS,
};

/* Why pages were moved. */
enum ldma_migration {
	LDMA_MIGRATION_COMPACTION,
	LDMA_MIGRATION_MEMORY_FAILURE,
	LDMA_MIGRATION_HOTPLUG,
	LDMA_MIGRATION_SYSCALL, /* move_pages(), migrate_pages(), cpusets */
	LDMA_MIGRATION_MBIND,
	LDMA_MIGRATION_NUMA_BALANCING,
	LDMA_MIGRATION_CONTIGUOUS, /* alloc_contig_range(): CMA, huge pages of 1 GiB */
	LDMA_MIGRATION_LONGTERM_PIN,
	LDMA_MIGRATION_DEMOTION,
	LDMA_MIGRATION_DAMON,
	LDMA_MIGRATION_OTHER,
	LDMA_MIGRATIONS,
};

enum { LDMA_MIGRATION_MODES = 3 }; /* async, sync light, sync: as in enum migrate_mode */

struct ldma_memory_counters {
	__u64 compaction_begun;
	__u64 compaction_ended[LDMA_COMPACTION_ENDS];
	__u64 migration_calls[LDMA_MIGRATION_MODES];
	__u64 pages_moved[LDMA_MIGRATIONS];
	__u64 pages_failed[LDMA_MIGRATIONS];
	__u64 huge_moved; /* THPs among them, as they were */
	__u64 huge_failed;
	__u64 huge_split; /* moved in pieces */
};
_Static_assert(sizeof(struct ldma_memory_counters) == 8 * (1 + 4 + 3 + 11 + 11 + 3),
	       "BPF and user space share this layout");

#endif
