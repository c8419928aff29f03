/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The steering programs decide which of the processes that share an address gets a packet.
 *
 * A packet to a queue pair goes to the slot in the top 8 bits of its number. QP 1, which every process has, gets
 * messages of the CM. They carry the receiver's own ID and go to the slot in its top 8 bits, except for messages that
 * start an exchange. Those carry a port: they go to the process that claimed it, or else to the lowest living slot,
 * which refuses them.
 *
 * The kernel knows which processes live: a socket that was closed is not in `sockets`. Only steer_udp can ask for it.
 * It sees every packet, also those that packet sockets receive, and notes in `living` what it finds for steer_packets:
 * after the death of a process a request may be lost once, and finds its way when it is repeated. */
#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/steer.h"
#include "wire/cm.h"

#define ROCE_PORT 4791
#define LOOPBACK 1 /* the index of lo in every network namespace */
#define LOOPBACK_NET 127
#define IP_OFFSET_MASK 0x1fff
#define UDP_BYTES 8
#define GSI_QP 1
#define MAD_OFFSET 20 /* from the BTH: after it and the DETH */

struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, LDMA_STEER_SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 16);
	__type(key, __u32); /* the lower half of the service ID: port space and port (IBA A11) */
	__type(value, __u32);
} claims SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LDMA_STEER_SLOTS);
	__type(key, __u32);
	__type(value, __u32); /* not 0: alive, as far as is known */
} living SEC(".maps");

/* Set by the process that loads the program, for steer_packets. */
const volatile __u32 own_slot, own_address, own_interface;

enum kind {
	DIRECT,  /* for the slot, dead or alive */
	CLAIMED, /* for the slot, or if it is dead for any living slot */
	ANYBODYS,
};

/* What steers a MAD (IBA 13.4.2, 12.6). */
struct mad {
	__u8 version, class, class_version, method;
	__u8 unused[12];
	__be16 attribute;
	__u8 unused2[6];
	__u8 own_id[4];  /* of the sender; of a SIDR exchange */
	__u8 peer_id[4]; /* of the receiver */
	__be32 service[2];
};

_Static_assert(sizeof(struct mad) == 40, "as on the wire");

static __always_inline enum kind find_owner_of_mad(void *ctx, __u32 at, __u32 *ret_slot)
{
	struct mad mad;
	__u32 service, *claim;

	if (bpf_skb_load_bytes(ctx, at, &mad, sizeof(mad)) || mad.class != LDMA_CM_CLASS)
		return ANYBODYS;
	switch (bpf_ntohs(mad.attribute)) {
	case LDMA_CM_REQ:
	case LDMA_CM_SIDR_REQ:
		service = bpf_ntohl(mad.service[1]);
		claim = mad.service[0] ? NULL : bpf_map_lookup_elem(&claims, &service);
		if (!claim)
			return ANYBODYS;
		*ret_slot = *claim;
		return CLAIMED;
	case LDMA_CM_SIDR_REP:
		*ret_slot = mad.own_id[0];
		return DIRECT;
	default:
		*ret_slot = mad.peer_id[0];
		return DIRECT;
	}
}

static __always_inline enum kind find_owner(void *ctx, __u32 bth, __u32 *ret_slot)
{
	__u8 qp[3];

	if (bpf_skb_load_bytes(ctx, bth + 5, qp, sizeof(qp)))
		return ANYBODYS; /* the receiver counts it as malformed */
	if (qp[0] == 0 && qp[1] == 0 && qp[2] == GSI_QP)
		return find_owner_of_mad(ctx, bth + MAD_OFFSET, ret_slot);
	*ret_slot = qp[0];
	return DIRECT;
}

static __always_inline bool try_slot(struct sk_reuseport_md *ctx, __u32 slot)
{
	bool is_living = !bpf_sk_select_reuseport(ctx, &sockets, &slot, 0);
	__u32 *noted = bpf_map_lookup_elem(&living, &slot);

	if (noted && *noted != is_living)
		*noted = is_living;
	return is_living;
}

struct search {
	struct sk_reuseport_md *ctx;
	bool has_found;
};

static long try_next(__u32 slot, struct search *search)
{
	search->has_found = try_slot(search->ctx, slot);
	return search->has_found;
}

SEC("sk_reuseport")
int steer_udp(struct sk_reuseport_md *ctx)
{
	struct search search = {ctx, false};
	__u32 slot = 0;
	enum kind kind = find_owner(ctx, UDP_BYTES, &slot);

	if (kind != ANYBODYS && try_slot(ctx, slot))
		return SK_PASS;
	if (kind == DIRECT)
		return SK_DROP; /* as a device drops what is for no queue pair of its own */
	bpf_loop(LDMA_STEER_SLOTS, try_next, &search, 0);
	return search.has_found ? SK_PASS : SK_DROP;
}

static __always_inline bool is_living(__u32 slot)
{
	__u32 *noted = bpf_map_lookup_elem(&living, &slot);

	return noted && *noted;
}

static long stop_at_living(__u32 slot, __u32 *ret_slot)
{
	*ret_slot = slot;
	return is_living(slot);
}

/* Lets through what the filter of a packet socket lets through that is alone at its address (port/packet_socket.c).
 * Returns the offset of the BTH, or 0. */
static __always_inline __u32 find_bth(struct __sk_buff *skb)
{
	struct {
		__u8 version_length, tos;
		__be16 length, id, offset;
		__u8 ttl, protocol;
		__be16 checksum;
		__u8 source[4];
		__be32 destination;
	} ip;
	__u32 udp;
	__be16 port;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip)))
		return 0;
	if (ip.protocol != IPPROTO_UDP || ip.destination != own_address ||
	    ip.offset & bpf_htons(IP_OFFSET_MASK))
		return 0;
	if (skb->ifindex != LOOPBACK &&
	    (skb->ifindex != own_interface || skb->pkt_type != PACKET_HOST ||
	     ip.source[0] == LOOPBACK_NET))
		return 0;
	udp = ETH_HLEN + (ip.version_length & 15) * 4;
	if (bpf_skb_load_bytes(skb, udp + 2, &port, sizeof(port)) || port != bpf_htons(ROCE_PORT))
		return 0;
	return udp + UDP_BYTES;
}

SEC("socket")
int steer_packets(struct __sk_buff *skb)
{
	__u32 bth = find_bth(skb), slot = 0;
	enum kind kind;

	if (!bth)
		return 0;
	kind = find_owner(skb, bth, &slot);
	if (kind == ANYBODYS || (kind == CLAIMED && !is_living(slot)))
		bpf_loop(LDMA_STEER_SLOTS, stop_at_living, &slot, 0);
	return slot == own_slot ? (int)skb->len : 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
