/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs of a capture copy the RoCE packets that pass into a ring buffer, and pass every packet on unchanged.
 *
 * A record is reserved in one of a few constant sizes, so that the frame is copied once, from the packet straight
 * into the ring. The consumer is not woken per packet: it looks by itself, and is woken only if it sleeps while the
 * ring fills. Packets for which the ring has no room are counted.
 */
#include "bpf/roce.h"

#include "bpf/capture_match.h"
#include "bpf/record.h"

#define TCX_NEXT (-1) /* a filter of clsact returns it, too, to decide nothing */
#define TAG_BYTES 4
#define SMALLEST 128 /* room for a frame in the smallest record */
/* headers of a GSO train before its first BTH; they fit the smallest record with a tag */
#define HEADERS_MAX 120

const volatile struct ldma_capture_config config;

__u32 consumer_sleeps; /* the consumer sets it before it sleeps; the CPU that wakes it clears it */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ldma_capture_counters);
} counters SEC(".maps");

/* A frame to be recorded, and how it lies in the packet. */
struct frame {
	__u64 time_ns;
	__u32 length; /* on the wire, without a tag that is kept beside the packet */
	__u32 start; /* where the frame's bytes start in the packet; those of a segment start `headers` early */
	__u32 ifindex;
	__u32 headers; /* a segment's: so many bytes at its front come from the front of the packet; otherwise 0 */
	__u16 segment;
	__u16 l3_offset, udp_offset;
	__u16 tag_type, tag; /* the tag to put back, in network order; type 0: none */
	__u8 direction;
	__u8 flags;
	__u8 ip_version;
};

static __always_inline bool addresses_match(const struct roce *roce)
{
	return ldma_capture_takes_addresses(&config, roce->ip_version, roce->src.halves,
					    roce->dst.halves);
}

static __always_inline bool transport_matches(__u32 operation, __u32 dest_qp, __u32 src_qp)
{
	return ldma_capture_takes_transport(&config, operation, dest_qp, src_qp);
}

static __always_inline bool sampled(struct ldma_capture_counters *count)
{
	if (!ldma_capture_leaves_out(&config, count->matched))
		return true;
	count->sampled_out++;
	return false;
}

static __always_inline long load(void *ctx, const bool xdp, __u32 offset, void *to, __u32 bytes)
{
	return xdp ? bpf_xdp_load_bytes(ctx, offset, to, bytes)
		   : bpf_skb_load_bytes(ctx, offset, to, bytes);
}

static __always_inline __u16 checksum_changed(__u32 sum, __u16 before, __u16 after)
{
	/* RFC 1624, equation 3; all in network order, which ones' complement does not mind */
	sum = (~sum & 0xffff) + (~before & 0xffff) + after;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* Gives a segment the lengths and the IPv4 ID that it has on the wire. at: the frame without a restored tag. */
static __always_inline void mend_segment(__u8 *at, const struct frame *frame)
{
	__u32 l3 = frame->l3_offset & 31, udp = frame->udp_offset;
	__u16 before, after;

	if (udp > HEADERS_MAX - sizeof(struct udphdr))
		return;
	*(__be16 *)(at + udp + 4) = bpf_htons(frame->length - udp);
	if (frame->ip_version == 6) {
		*(__be16 *)(at + l3 + 4) = bpf_htons(frame->length - l3 - sizeof(struct ipv6hdr));
		return;
	}
	struct iphdr *ip = (struct iphdr *)(at + l3);

	before = ip->tot_len;
	after = bpf_htons(frame->length - l3);
	ip->check = checksum_changed(ip->check, before, after);
	ip->tot_len = after;
	before = ip->id;
	after = bpf_htons(bpf_ntohs(before) + frame->segment);
	ip->check = checksum_changed(ip->check, before, after);
	ip->id = after;
}

/* Copies the frame's bytes to `to`, of which there is room for `size` >= bytes. */
static __always_inline bool copy_frame(void *ctx, const bool xdp, const struct frame *frame,
				       __u8 *to, __u32 bytes, const __u32 size)
{
	__u32 headers = frame->headers;

	bytes = roce_within(bytes, size);
	if (!bytes || load(ctx, xdp, frame->start, to, bytes))
		return false;
	if (xdp || !headers)
		return true;
	if (headers > HEADERS_MAX || load(ctx, xdp, 0, to, headers))
		return false;
	mend_segment(to, frame);
	return true;
}

/* Copies the front of a packet that fills the smallest record, without a call: the usual case of a short snaplen. */
static __always_inline bool copy_front(struct xdp_md *ctx, __u8 *to, __u32 bytes, const __u32 size)
{
	void *data = (void *)(long)ctx->data;

	if (size != SMALLEST || bytes != SMALLEST || data + SMALLEST > (void *)(long)ctx->data_end)
		return false;
	__builtin_memcpy(to, data, SMALLEST);
	return true;
}

static __always_inline bool copy_tagged(void *ctx, const struct frame *frame, __u8 *to, __u32 bytes,
					const __u32 size)
{
	if (bytes < 2 * ETH_ALEN + TAG_BYTES ||
	    !copy_frame(ctx, false, frame, to + TAG_BYTES, bytes - TAG_BYTES, size - TAG_BYTES) ||
	    bpf_skb_load_bytes(ctx, 0, to, 2 * ETH_ALEN))
		return false;
	*(__be16 *)(to + 12) = frame->tag_type;
	*(__be16 *)(to + 14) = frame->tag;
	return true;
}

static __always_inline __u64 wakeup(void)
{
	if (!consumer_sleeps || bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < config.wake_bytes)
		return BPF_RB_NO_WAKEUP;
	consumer_sleeps = 0;
	return BPF_RB_FORCE_WAKEUP;
}

/* Records a frame in a record of constant size. */
static __always_inline void record_sized(void *ctx, const bool xdp, const struct frame *frame,
					 __u32 captured, struct ldma_capture_counters *count,
					 const __u32 size)
{
	struct ldma_record *record = bpf_ringbuf_reserve(&ring, sizeof(*record) + size, 0);
	bool copied;

	if (!record) {
		count->ring_dropped++;
		return;
	}
	record->time_ns = frame->time_ns;
	record->captured = captured;
	record->length = frame->length + (!xdp && frame->tag_type ? TAG_BYTES : 0);
	record->ifindex = frame->ifindex;
	record->segment = frame->segment;
	record->direction = frame->direction;
	record->flags = frame->flags;
	if (!xdp && frame->tag_type)
		copied = copy_tagged(ctx, frame, record->frame, captured, size);
	else
		copied = (xdp && copy_front(ctx, record->frame, captured, size)) ||
			 copy_frame(ctx, xdp, frame, record->frame, captured, size);
	if (!copied) {
		bpf_ringbuf_discard(record, BPF_RB_NO_WAKEUP);
		count->unreadable++;
		return;
	}
	count->recorded++;
	bpf_ringbuf_submit(record, wakeup());
}

/* The sizes fit frames of the path MTUs 256, 512, 1024, 2048 and 4096 with their headers, and jumbo frames. */
static __always_inline void record(void *ctx, const bool xdp, const struct frame *frame,
				   struct ldma_capture_counters *count)
{
	__u32 captured = frame->length + (!xdp && frame->tag_type ? TAG_BYTES : 0);

	if (captured > config.snaplen)
		captured = config.snaplen;
	if (captured <= SMALLEST)
		record_sized(ctx, xdp, frame, captured, count, SMALLEST);
	else if (captured <= 384)
		record_sized(ctx, xdp, frame, captured, count, 384);
	else if (captured <= 640)
		record_sized(ctx, xdp, frame, captured, count, 640);
	else if (captured <= 1152)
		record_sized(ctx, xdp, frame, captured, count, 1152);
	else if (captured <= 2240)
		record_sized(ctx, xdp, frame, captured, count, 2240);
	else if (captured <= 4288)
		record_sized(ctx, xdp, frame, captured, count, 4288);
	else if (captured <= LDMA_CAPTURE_SNAPLEN_MAX)
		record_sized(ctx, xdp, frame, captured, count, LDMA_CAPTURE_SNAPLEN_MAX);
	else
		count->unreadable++;
}

static __always_inline struct ldma_capture_counters *my_counters(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counters, &key);
}

/* Returns whether the filters and sampling let a packet of a known operation through, and counts it. */
static __always_inline bool wanted(struct ldma_capture_counters *count, bool match, __u32 length)
{
	count->roce++;
	if (!match)
		return false;
	count->matched++;
	count->bytes += length;
	return sampled(count);
}

SEC("xdp.frags")
int capture_xdp(struct xdp_md *ctx)
{
	struct ldma_capture_counters *count = my_counters();
	__u32 length = bpf_xdp_get_buff_len(ctx);
	struct roce roce;

	if (!count)
		return XDP_PASS;
	count->frames++;
	if (!roce_parse_xdp(ctx, length, &roce))
		return XDP_PASS;
	if (wanted(count,
		   addresses_match(&roce) &&
			   transport_matches(roce.operation, roce.dest_qp, roce.src_qp),
		   length)) {
		struct frame frame = {
			.time_ns = bpf_ktime_get_ns(),
			.length = length,
			.ifindex = ctx->ingress_ifindex,
			.direction = LDMA_RECORD_RX,
			.flags = LDMA_RECORD_XDP,
		};

		record(ctx, true, &frame, count);
	}
	return XDP_PASS;
}

/* A train of segments on its way through bpf_loop(). */
struct train {
	struct __sk_buff *skb;
	struct ldma_capture_counters *count;
	struct frame frame;
	__u32 payload; /* offset of the first segment's BTH, which is the length of the headers before it */
	__u32 size; /* bytes of each segment but the last */
	bool addresses_match;
};

static __noinline void record_train_segment(struct __sk_buff *skb, const struct frame *frame,
					    struct ldma_capture_counters *count)
{
	if (frame && count)
		record(skb, false, frame, count);
}

static long each_segment(__u32 index, void *data)
{
	struct train *train = data;
	struct __sk_buff *skb = train->skb;
	struct frame *frame = &train->frame;
	__u32 at = train->payload + index * train->size, bytes, operation = LDMA_OP_UNKNOWN;
	__u32 dest_qp = 0, src_qp = 0;
	__u8 bth[ROCE_BTH_BYTES], deth[8];

	if (at >= skb->len)
		return 1;
	bytes = skb->len - at < train->size ? skb->len - at : train->size;
	frame->segment = index;
	frame->length = train->payload + bytes;
	frame->start = at - train->payload;
	if (bytes >= sizeof(bth) && !bpf_skb_load_bytes(skb, at, bth, sizeof(bth))) {
		const struct roce_opcode *opcode = &roce_opcodes[bth[0]];

		operation = opcode->operation;
		dest_qp = (__u32)bth[5] << 16 | bth[6] << 8 | bth[7];
		at += sizeof(bth) + (opcode->headers & RDETH ? 4 : 0);
		if (opcode->headers & DETH && !bpf_skb_load_bytes(skb, at, deth, sizeof(deth)))
			src_qp = (__u32)deth[5] << 16 | deth[6] << 8 | deth[7];
	}
	if (wanted(train->count,
		   train->addresses_match && transport_matches(operation, dest_qp, src_qp),
		   frame->length))
		record_train_segment(skb, frame, train->count);
	return 0;
}

static __always_inline int capture_skb(struct __sk_buff *skb, __u8 direction)
{
	struct train train = {.skb = skb, .count = my_counters()};
	struct frame *frame = &train.frame;
	struct roce roce;

	if (!train.count)
		return TCX_NEXT;
	train.count->frames++;
	if (!roce_parse_skb(skb, &roce))
		return TCX_NEXT;
	train.addresses_match = addresses_match(&roce);
	frame->time_ns = bpf_ktime_get_ns();
	frame->length = skb->len;
	frame->ifindex = skb->ifindex;
	frame->direction = direction;
	frame->ip_version = roce.ip_version;
	if (skb->vlan_present) {
		frame->tag_type = skb->vlan_proto;
		frame->tag = bpf_htons(skb->vlan_tci);
		frame->flags |= LDMA_RECORD_TAGGED;
	}
	if (skb->gso_size && roce.version == 2 && roce.bth_offset <= HEADERS_MAX) {
		frame->headers = roce.bth_offset;
		frame->l3_offset = roce.l3_offset;
		frame->udp_offset = roce.udp_offset;
		frame->flags |= LDMA_RECORD_SEGMENT;
		train.payload = roce.bth_offset;
		train.size = skb->gso_size;
		bpf_loop(1 << 16, each_segment, &train, 0);
	} else if (wanted(train.count,
			  train.addresses_match &&
				  transport_matches(roce.operation, roce.dest_qp, roce.src_qp),
			  frame->length)) {
		record_train_segment(skb, frame, train.count);
	}
	return TCX_NEXT;
}

SEC("tc")
int capture_tc_ingress(struct __sk_buff *skb)
{
	return capture_skb(skb, LDMA_RECORD_RX);
}

SEC("tc")
int capture_tc_egress(struct __sk_buff *skb)
{
	return capture_skb(skb, LDMA_RECORD_TX);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
