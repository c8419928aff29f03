/* SPDX-License-Identifier: BSD-2-Clause */
/* A session counts compaction and page migration of the whole host, from memory_open() on, with the programs of
 * memory.bpf.c. Functions return 0 or a negative errno. One thread uses a session at a time. */
#ifndef LDMA_MEMORY_SESSION_H
#define LDMA_MEMORY_SESSION_H

#include <stdint.h>

#include "bpf/memory_counters.h"

/* Tracepoints that a kernel may lack, as bits. */
enum {
	MEMORY_COMPACTION_BEGIN = 1,
	MEMORY_COMPACTION_END = 2,
	MEMORY_MIGRATION = 4,
};

struct memory_session;

/* Loads the programs and attaches what this kernel has tracepoints for. -EPERM: loading needs CAP_BPF and CAP_PERFMON.
 * -EACCES: tracefs may not be read. -ENOENT: it is not mounted, or has none of the tracepoints. -ESRCH: the kernel has
 * no BTF. */
int memory_open(struct memory_session **ret);
/* Detaches and frees the session. NULL is accepted. */
void memory_close(struct memory_session *session);

/* Returns which tracepoints are attached, as bits. */
uint32_t memory_attached(const struct memory_session *session);
/* Adds up the counters of all CPUs. */
int memory_counters(struct memory_session *session, struct ldma_memory_counters *ret);

#endif
