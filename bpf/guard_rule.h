/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The guard's rules and counters: the same structs in BPF and user space.
 *
 * A ruleset is replaced as a whole: user space fills a new map and puts it into the slot of the map of maps `rulesets`
 * that the program looks up once per packet. Each packet is judged by one ruleset from its first rule to its last, and
 * when the replacement returns no packet is left that still sees the old one.
 */
#ifndef LDMA_GUARD_RULE_H
#define LDMA_GUARD_RULE_H

#include <linux/types.h>

#define LDMA_GUARD_RULES 64
#define LDMA_GUARD_RULE_QPS 16
#define LDMA_GUARD_NO_QP 0x7fffffffu /* fills the unused places of ldma_guard_rule.qps */
#define LDMA_GUARD_RATE_MAX 10000000 /* packets a second: intervals are whole nanoseconds */
#define LDMA_GUARD_BURST_MAX 100000000

/* A slot holds a rule's counters and its bucket, wherever the rule stands. There are twice as many as rules, so that
 * a ruleset that shares no rule with the one it replaces can count from 0. Behind them: the counters of no rule. */
#define LDMA_GUARD_SLOTS (2 * LDMA_GUARD_RULES)
#define LDMA_GUARD_SLOT_NEW 0xffffu           /* ldma_guard_replace() finds one */
#define LDMA_GUARD_UNMATCHED LDMA_GUARD_SLOTS /* RoCE that no rule matched: it passed */
#define LDMA_GUARD_MALFORMED                                                                       \
	(LDMA_GUARD_SLOTS + 1) /* RoCE without a whole BTH, in addition to its rule */
#define LDMA_GUARD_COUNTERS (LDMA_GUARD_SLOTS + 2)

/* Every possible QP has a bit that says whether it exists. */
#define LDMA_GUARD_QPS (1u << 24)
#define LDMA_GUARD_QP_WORDS (LDMA_GUARD_QPS / 64)

enum ldma_guard_action { LDMA_GUARD_ALLOW, LDMA_GUARD_DROP, LDMA_GUARD_LIMIT };

enum ldma_guard_qp_match {
	LDMA_GUARD_QP_ANY,
	LDMA_GUARD_QP_LISTED,
	LDMA_GUARD_QP_UNKNOWN, /* neither 0, 1 nor one that exists; or there is no whole BTH to tell */
};

/* A packet matches if it meets every condition. The BTH's conditions never hold for a packet without a whole BTH,
 * LDMA_GUARD_QP_UNKNOWN excepted. */
struct ldma_guard_rule {
	__u64 source[2]; /* bytes as on the wire, IPv4 in the first four; no bit outside of mask */
	__u64 mask[2];
	__u64 interval_ns;  /* LIMIT: between two packets at the rate */
	__u64 tolerance_ns; /* LIMIT: burst * interval_ns */
	__u32 qps[LDMA_GUARD_RULE_QPS];
	__u32 rate;       /* LIMIT: packets a second, as given */
	__u32 burst;      /* LIMIT: packets, as given */
	__u32 operations; /* bits 1 << enum ldma_operation; 0: any */
	__u16 slot;
	__u8 action;     /* enum ldma_guard_action */
	__u8 ip_version; /* 0: any source. RoCEv1's IPv4-mapped GIDs count as IPv4 */
	__u8 prefix;     /* bits of mask, as given */
	__u8 qp_match;   /* enum ldma_guard_qp_match */
	__u8 malformed;  /* only packets without a whole BTH */
	__u8 reserved[5];
};
_Static_assert(sizeof(struct ldma_guard_rule) == 136, "BPF and user space share this layout");

struct ldma_guard_ruleset {
	__u32 count;
	__u32 reserved;
	struct ldma_guard_rule rules[LDMA_GUARD_RULES];
};
_Static_assert(sizeof(struct ldma_guard_ruleset) == 8 + 136 * LDMA_GUARD_RULES,
	       "BPF and user space share this layout");

/* One per CPU and slot; packets, bytes and dropped add up, last_ns is the latest. */
struct ldma_guard_counters {
	__u64 packets;
	__u64 bytes;   /* of the frames */
	__u64 dropped; /* packets among them */
	__u64 last_ns; /* CLOCK_MONOTONIC, to a tick; 0: never */
};
_Static_assert(sizeof(struct ldma_guard_counters) == 32, "BPF and user space share this layout");

/* The bucket of a rule that limits; alone on its cache line. */
struct ldma_guard_bucket {
	__u64 full_ns; /* when the bucket is full again, CLOCK_MONOTONIC */
	__u64 reserved[7];
};
_Static_assert(sizeof(struct ldma_guard_bucket) == 64, "BPF and user space share this layout");

#endif
