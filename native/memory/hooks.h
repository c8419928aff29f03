/* SPDX-License-Identifier: BSD-2-Clause */
/* Hooks tell listeners what happens to memory of this process, page by page. A device with a page table of its own is
 * such a listener: regions on demand (memory/pager.h) are the first of every list.
 *
 * The pager's threads call the hooks. What the kernel reports by a userfaultfd is told at once: the thread that did it
 * goes on when the pager has read the report, and devices when all listeners have been told. The rest is found by looking
 * at the page table now and then, if a listener asks for that. hooks.def says which is which.
 *
 * An event reaches all regions, then the other listeners in the order in which they began to listen, each cut to its
 * range. Events are told one after the other, in the order of their numbers. Release comes last.
 *
 * A hook runs in the pager's gate, in which devices copy packets, and meanwhile threads of the program may wait
 * in their munmap, with locks. So it may not block, allocate or free memory, take a lock whose holder might do such a thing,
 * or call the pager. hook_queue.h has hooks that only write the event down. */
#ifndef LDMA_HOOKS_H
#define LDMA_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

enum ldma_hook {
#define MEMORY_HOOK(name) LDMA_HOOK_##name,
#include "memory/hooks.def"
};

enum ldma_cause {
#define MEMORY_CAUSE(name) LDMA_CAUSE_##name,
#include "memory/hooks.def"
};

struct ldma_memory_event {
	uint64_t number;      /* counts the events of the process */
	uint64_t start, end;  /* addresses, of whole pages */
	uint64_t to;          /* where mremap took them, else 0 */
	uint64_t lost;        /* of LDMA_CAUSE_lost: how many events */
	uint32_t hook, cause; /* enum ldma_hook and ldma_cause */
	uint32_t protection;  /* of LDMA_CAUSE_protected: PROT_READ and so on */
	uint32_t reserved;
};

/* Any hook may be NULL. An event of a single page goes to ..._page, or to ..._range if that is NULL. */
struct ldma_hooks {
#define MEMORY_HOOK(name) void (*name)(void *arg, const struct ldma_memory_event *event);
#include "memory/hooks.def"
};

struct ldma_listener;

/* Begins to listen to what happens to the pages of the memory. With a period, a thread looks at them that often (8 bytes
 * of memory for each page), else the listener hears only what is told at once. Errors are those of ldma_pager_open. */
int ldma_memory_listen(void *memory, uint64_t length, uint64_t period_ns,
		       const struct ldma_hooks *hooks, void *arg, struct ldma_listener **ret);

/* Tells the listener its release, if exit has not done so, and ends it: no hook is called any more. */
void ldma_memory_unlisten(struct ldma_listener *listener);

/* Looks now at all that listeners with a period listen to. When it returns, all has been told that it found or that the
 * kernel had reported before, but for forks. */
void ldma_memory_look(void);

/* Tells all listeners their release, as exit() does by itself. */
void ldma_memory_exit(void);

#endif
