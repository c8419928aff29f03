/* Compaction and page migration, counted from memory_open() on. Functions return 0 or a negative errno. */
#ifndef LDMA_MEMORY_SESSION_H
#define LDMA_MEMORY_SESSION_H

#include <stdint.h>

#include "memory_counters.h"

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
/* Detaches; NULL is fine. */
void memory_close(struct memory_session *session);

/* Which tracepoints count. */
uint32_t memory_attached(const struct memory_session *session);
/* All CPUs' counters together. */
int memory_counters(struct memory_session *session, struct ldma_memory_counters *ret);

#endif
