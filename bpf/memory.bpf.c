/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs count compaction and page migration at the kernel's tracepoints.
 *
 * Only the fields that are used are declared; their offsets in a record, and the numbers of enumerators, come from the
 * running kernel's BTF when the program is loaded. */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/memory_counters.h"

#define RELOCATED __attribute__((preserve_access_index))

struct trace_event_raw_mm_compaction_end {
	int status;
} RELOCATED;

enum migrate_mode {
	MIGRATE_ASYNC,
	MIGRATE_SYNC_LIGHT,
	MIGRATE_SYNC,
};

struct trace_event_raw_mm_migrate_pages {
	unsigned long succeeded;
	unsigned long failed;
	unsigned long thp_succeeded;
	unsigned long thp_failed;
	unsigned long thp_split;
	enum migrate_mode mode;
	int reason;
} RELOCATED;

enum compact_result {
	COMPACT_COMPLETE,
	COMPACT_PARTIAL_SKIPPED,
	COMPACT_CONTENDED,
	COMPACT_SUCCESS,
};

enum migrate_reason {
	MR_COMPACTION,
	MR_MEMORY_FAILURE,
	MR_MEMORY_HOTPLUG,
	MR_SYSCALL,
	MR_MEMPOLICY_MBIND,
	MR_NUMA_MISPLACED,
	MR_CONTIG_RANGE,
	MR_LONGTERM_PIN,
	MR_DEMOTION,
	MR_DAMON,
};

/* Whether the kernel has such an enumerator, and value is it. */
#define IS(value, type, name)                                                                      \
	(bpf_core_enum_value_exists(type, name) && (value) == (int)bpf_core_enum_value(type, name))

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_memory_counters);
} counters SEC(".maps");

static struct ldma_memory_counters *own_counters(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

static enum ldma_compaction_end end_of(int status)
{
	if (IS(status, enum compact_result, COMPACT_SUCCESS))
		return LDMA_COMPACTION_SUCCESS;
	if (IS(status, enum compact_result, COMPACT_COMPLETE) ||
	    IS(status, enum compact_result, COMPACT_PARTIAL_SKIPPED))
		return LDMA_COMPACTION_WHOLE_ZONE;
	if (IS(status, enum compact_result, COMPACT_CONTENDED))
		return LDMA_COMPACTION_CONTENDED;
	return LDMA_COMPACTION_OTHER;
}

static enum ldma_migration reason_of(int reason)
{
	if (IS(reason, enum migrate_reason, MR_COMPACTION))
		return LDMA_MIGRATION_COMPACTION;
	if (IS(reason, enum migrate_reason, MR_MEMORY_FAILURE))
		return LDMA_MIGRATION_MEMORY_FAILURE;
	if (IS(reason, enum migrate_reason, MR_MEMORY_HOTPLUG))
		return LDMA_MIGRATION_HOTPLUG;
	if (IS(reason, enum migrate_reason, MR_SYSCALL))
		return LDMA_MIGRATION_SYSCALL;
	if (IS(reason, enum migrate_reason, MR_MEMPOLICY_MBIND))
		return LDMA_MIGRATION_MBIND;
	if (IS(reason, enum migrate_reason, MR_NUMA_MISPLACED))
		return LDMA_MIGRATION_NUMA_BALANCING;
	if (IS(reason, enum migrate_reason, MR_CONTIG_RANGE))
		return LDMA_MIGRATION_CONTIGUOUS;
	if (IS(reason, enum migrate_reason, MR_LONGTERM_PIN))
		return LDMA_MIGRATION_LONGTERM_PIN;
	if (IS(reason, enum migrate_reason, MR_DEMOTION))
		return LDMA_MIGRATION_DEMOTION;
	if (IS(reason, enum migrate_reason, MR_DAMON))
		return LDMA_MIGRATION_DAMON;
	return LDMA_MIGRATION_OTHER;
}

SEC("tracepoint/compaction/mm_compaction_begin")
int compaction_begin(void *record)
{
	struct ldma_memory_counters *own = own_counters();

	(void)record;
	if (own)
		own->compaction_begun++;
	return 0;
}

SEC("tracepoint/compaction/mm_compaction_end")
int compaction_end(struct trace_event_raw_mm_compaction_end *record)
{
	struct ldma_memory_counters *own = own_counters();

	if (own)
		own->compaction_ended[end_of(record->status)]++;
	return 0;
}

SEC("tracepoint/migrate/mm_migrate_pages")
int migrate_pages(struct trace_event_raw_mm_migrate_pages *record)
{
	struct ldma_memory_counters *own = own_counters();
	enum ldma_migration reason;
	__u32 mode;

	if (!own)
		return 0;
	reason = reason_of(record->reason);
	own->pages_moved[reason] += record->succeeded;
	own->pages_failed[reason] += record->failed;
	mode = (__u32)record->mode;
	if (mode < LDMA_MIGRATION_MODES)
		own->migration_calls[mode]++;
	if (bpf_core_field_exists(record->thp_succeeded)) {
		own->huge_moved += record->thp_succeeded;
		own->huge_failed += record->thp_failed;
		own->huge_split += record->thp_split;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
