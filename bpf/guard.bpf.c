/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A packet may have as many as IPv6 has and allows at once (RFC 8200 §4.1); one with more hides something. */
#define ROCE_EXTENSIONS_MAX 6
#include "bpf/roce.h"

#include "bpf/guard_rule.h"

#define TOKEN_TRIES 16

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1);
			__type(key, __u32);
			__type(value, struct ldma_guard_ruleset);
		});
} rulesets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LDMA_GUARD_COUNTERS);
	__type(key, __u32);
	__type(value, struct ldma_guard_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LDMA_GUARD_SLOTS);
	__type(key, __u32);
	__type(value, struct ldma_guard_bucket);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, LDMA_GUARD_QP_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} known_qps SEC(".maps");

static __always_inline void count(__u32 slot, __u32 bytes, bool drop)
{
	struct ldma_guard_counters *counter = bpf_map_lookup_elem(&counters, &slot);

	if (!counter)
		return;
	counter->packets++;
	counter->bytes += bytes;
	counter->dropped += drop;
	counter->last_ns = bpf_ktime_get_coarse_ns();
}

static __always_inline bool is_known(__u32 qp)
{
	__u32 key = qp / 64;
	__u64 *word = bpf_map_lookup_elem(&known_qps, &key);

	return qp <= 1 || (word && *word >> (qp % 64) & 1);
}

/* Takes a token by the generic cell rate algorithm: a token bucket in one word, so that CPUs share it without a lock. A
 * packet moves full_ns on by one interval, and passes as long as full_ns stays within the tolerance. */
static __always_inline bool take_token(const struct ldma_guard_rule *rule)
{
	__u32 key = rule->slot;
	struct ldma_guard_bucket *bucket = bpf_map_lookup_elem(&buckets, &key);
	__u64 now_ns = bpf_ktime_get_ns(), full_ns, next_ns;

	if (!bucket)
		return false;
	for (int i = 0; i < TOKEN_TRIES; i++) {
		full_ns = *(volatile __u64 *)&bucket->full_ns;
		next_ns = (full_ns > now_ns ? full_ns : now_ns) + rule->interval_ns;
		if (next_ns - now_ns > rule->tolerance_ns)
			return false;
		if (__sync_val_compare_and_swap(&bucket->full_ns, full_ns, next_ns) == full_ns)
			return true;
	}
	return false; /* other CPUs took a token at each try */
}

/* Compares without a branch for each QP: the verifier would follow them all. Unused places differ from every QP in bit
 * 24. */
static __always_inline bool is_listed(const struct ldma_guard_rule *rule, __u32 qp)
{
	__u32 hits = 0;

#pragma unroll
	for (int i = 0; i < LDMA_GUARD_RULE_QPS; i++)
		hits |= (rule->qps[i] ^ qp) - 1; /* only a difference of 0 sets bit 31 */
	return hits >> 31;
}

/* This and first_match() are not static: so the verifier checks each by itself, once, and not again for every rule and
 * every way through the headers. */
__noinline bool matches(const struct ldma_guard_rule *rule, const struct roce *roce, bool known)
{
	if (!rule || !roce)
		return false;
	if (rule->ip_version && rule->ip_version != roce->ip_version)
		return false;
	if ((roce->src.halves[0] ^ rule->source[0]) & rule->mask[0] ||
	    (roce->src.halves[1] ^ rule->source[1]) & rule->mask[1])
		return false;
	if (rule->malformed && roce->has_bth)
		return false;
	if (rule->operations && !(roce->has_bth && rule->operations >> (roce->operation & 31) & 1))
		return false;
	if (rule->qp_match == LDMA_GUARD_QP_UNKNOWN)
		return !known;
	if (rule->qp_match == LDMA_GUARD_QP_LISTED)
		return roce->has_bth && is_listed(rule, roce->dest_qp);
	return true;
}

/* Returns the number of the first rule that matches, or LDMA_GUARD_RULES. */
__noinline __u32 first_match(const struct ldma_guard_ruleset *ruleset, const struct roce *roce,
			     bool known)
{
	if (!ruleset || !roce)
		return LDMA_GUARD_RULES;
	for (__u32 i = 0; i < LDMA_GUARD_RULES; i++) {
		if (i >= ruleset->count)
			break;
		if (matches(&ruleset->rules[i], roce, known))
			return i;
	}
	return LDMA_GUARD_RULES;
}

/* Gives each source a single form, and drops a BTH that reaches beyond the packet. */
static __always_inline void normalize(struct roce *roce)
{
	if (roce->ip_version == 6 && !roce->src.halves[0] &&
	    roce->src.words[2] == bpf_htonl(0xffff)) {
		roce->ip_version = 4;
		roce->src.words[0] = roce->src.words[3];
		roce->src.words[1] = 0;
		roce->src.halves[1] = 0;
	}
	if ((__u32)roce->bth_offset - roce->l3_offset + ROCE_BTH_BYTES > roce->ip_bytes)
		roce->has_bth = 0;
}

static __always_inline const struct ldma_guard_ruleset *current_ruleset(void)
{
	__u32 key = 0;
	void *ruleset = bpf_map_lookup_elem(&rulesets, &key);

	return ruleset ? bpf_map_lookup_elem(ruleset, &key) : NULL;
}

SEC("xdp.frags")
int guard_xdp(struct xdp_md *ctx)
{
	const struct ldma_guard_ruleset *ruleset;
	const struct ldma_guard_rule *rule = NULL;
	__u32 bytes = bpf_xdp_get_buff_len(ctx), match;
	struct roce roce;
	bool known, drop;

	if (!roce_parse_xdp(ctx, bytes, &roce) && !roce.is_endless)
		return XDP_PASS;
	ruleset = current_ruleset();
	if (!ruleset)
		return XDP_PASS;
	normalize(&roce);
	known = roce.has_bth && is_known(roce.dest_qp);
	match = first_match(ruleset, &roce, known);
	if (match < LDMA_GUARD_RULES)
		rule = &ruleset->rules[match];
	drop = rule && (rule->action == LDMA_GUARD_DROP ||
			(rule->action == LDMA_GUARD_LIMIT && !take_token(rule)));
	if (!roce.has_bth)
		count(LDMA_GUARD_MALFORMED, bytes, drop);
	count(rule ? rule->slot : LDMA_GUARD_UNMATCHED, bytes, drop);
	return drop ? XDP_DROP : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
