#include "roce.h"

#include "record.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_capture_counters);
} counters SEC(".maps");

static __always_inline struct ldma_capture_counters *my_counters(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

SEC("xdp.frags")
int capture_xdp(struct xdp_md *ctx)
{
	struct ldma_capture_counters *count = my_counters();
	struct roce roce;

	if (count && roce_parse_xdp(ctx, bpf_xdp_get_buff_len(ctx), &roce))
		count->roce++;
	return XDP_PASS;
}

SEC("tc")
int capture_tc_egress(struct __sk_buff *skb)
{
	struct ldma_capture_counters *count = my_counters();
	struct roce roce;

	if (count && roce_parse_skb(skb, &roce))
		count->roce++;
	return -1; /* TCX_NEXT */
}

char LICENSE[] SEC("license") = "GPL";
