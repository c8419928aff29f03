/* SPDX-License-Identifier: BSD-2-Clause */
/* The guard's user space side: it loads, attaches and pins the program; later it finds it again, lists and changes its
 * rules, and takes it away.
 *
 * The guard outlives the process: its link and maps are pinned in one directory per interface, the link last, so that
 * a directory without a link is what an interrupted start left behind. A caller that changes anything holds a lock of
 * its own making, across processes. Functions return 0 or a negative errno.
 */
#ifndef LDMA_GUARD_SESSION_H
#define LDMA_GUARD_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/guard_rule.h"

/* The XDP program of an interface. */
struct guard_xdp {
	uint32_t prog_id; /* 0: none */
	uint32_t link_id; /* of the BPF link that holds it; 0: no link does */
	bool generic;
	char name[16]; /* may be empty */
};

struct guard_session;

/* Returns whether there is a BPF file system at the path. */
bool guard_is_bpffs(const char *path);

/* Finds the XDP program on an interface of this thread's network namespace. -ENODEV: there is no such interface. */
int guard_xdp_query(uint32_t ifindex, struct guard_xdp *ret);

/* Loads the program, pins its maps in `directory`, attaches it (native XDP, else generic) and pins the link. The
 * directory exists and is empty. With no rules yet, everything passes. On failure nothing stays attached, but pins may
 * stay for the caller to remove. -EBUSY: another XDP program is attached, and nothing was changed. */
int guard_start(uint32_t ifindex, const char *directory, struct guard_session **ret);

/* Opens what guard_start() pinned. -ENOENT: there is no link. -ENODEV: its interface is gone. -EPROTO: the maps have
 * another layout, so another version of the program pinned them. */
int guard_open(const char *directory, struct guard_session **ret);
void guard_close(struct guard_session *session); /* accepts NULL; the guard itself stays */

/* Detaches the program of a pinned link, whatever version pinned it. -ENOENT: there is no link. The pins stay. */
int guard_detach(const char *directory);

int guard_rules(struct guard_session *session, struct ldma_guard_ruleset *ret);

/* Replaces all rules at once. A rule whose slot is LDMA_GUARD_SLOT_NEW gets one, zeroed; others keep theirs and so
 * their counters and tokens. -EINVAL for a slot that the present ruleset does not have. */
int guard_replace(struct guard_session *session, struct ldma_guard_ruleset *ruleset);

/* Fills ret with the sums over all CPUs, LDMA_GUARD_COUNTERS of them. */
int guard_counters(struct guard_session *session, struct ldma_guard_counters *ret);

/* Returns the known QPs as LDMA_GUARD_QP_WORDS words of 64 bits, shared with the program; valid until guard_close(). */
uint64_t *guard_known_qps(struct guard_session *session);

#endif
