/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds RoCE in a packet, for XDP and tc programs.
 *
 * roce_parse_xdp() and roce_parse_skb() walk Ethernet, up to two VLAN tags, IPv4 with options or IPv6 with a bounded
 * number of extension headers, UDP to port 4791 and the BTH, or the GRH of RoCEv1 and its BTH: one cursor, one bounds
 * check per header. They read the packet in place; where its linear part ends too early (multi-buffer XDP, paged
 * skbs) they walk a copy of its first ROCE_COPY_BYTES bytes instead. The packet is never changed.
 */
#ifndef LDMA_ROCE_H
#define LDMA_ROCE_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/roce_opcodes.h"

#define ROCE_PORT 4791
#define ROCE_ETHERTYPE_V1 0x8915
#define ROCE_NEXT_HEADER_BTH 0x1b
#define ROCE_BTH_BYTES 12
#ifndef ROCE_EXTENSIONS_MAX
#define ROCE_EXTENSIONS_MAX 4 /* IPv6 extension headers that are followed */
#endif
#define ROCE_COPY_BYTES 256
#define ROCE_COPY_ROOM 64 /* after the copy: Linux 6.1 knows the end of a header only so exactly */

enum roce_found {
	ROCE_NONE,
	ROCE_SHORT, /* within this header: the readable part of the packet ended too early to tell */
	ROCE_FOUND,
};

/* As on the wire; IPv4 in the first four bytes, the others 0. */
union roce_address {
	__u8 bytes[16];
	__be32 words[4];
	__u64 halves[2];
};

/* Numbers are in host order; offsets count from the first byte of the packet. */
struct roce {
	union roce_address src, dst;
	__u32 dest_qp, psn;
	__u32 src_qp;    /* of the DETH; 0 where there is none */
	__u32 ip_bytes;  /* from l3_offset to the end of the packet, as the IP header or GRH says */
	__u16 l3_offset; /* of the IP header or GRH */
	__u16 udp_offset; /* 0 for RoCEv1 */
	__u16 bth_offset;
	__u16 headers; /* enum ldma_header_bit: those the opcode calls for */
	__u16 sport, pkey;
	__u8 version;    /* 1: RoCEv1, 2: RoCEv2 */
	__u8 ip_version; /* 4 or 6; a GRH counts as 6 */
	__u8 has_bth;    /* 0: the packet ends within its BTH, and what comes from that is 0 */
	__u8 opcode;
	__u8 operation; /* enum ldma_operation; LDMA_OP_UNKNOWN: not in the table */
	__u8 role;      /* enum ldma_role */
	__u8 bth_flags; /* second byte of the BTH: SE, M, pad (2 bits), version (4 bits) */
	__u8 ack_req;
	__u8 is_endless; /* IPv6 with more extension headers than are followed: it may be RoCE */
};

/* The place of a walk in the packet. copy is NULL when the packet is read in place; it is a constant in each inlined
 * walk. */
struct roce_cursor {
	void *pos, *end;
	__u8 *copy;
	__u32 copied;
	__u32 at; /* offset in the packet */
};

/* Returns bytes if they are from 1 to `most`, else 0, in a way that the verifier of Linux 6.1 follows: it learns
 * nothing from a test that a value is not 0. */
static __always_inline __u32 roce_within(__u32 bytes, __u32 most)
{
	__u32 rest = bytes - 1;

	if (rest >= most)
		return 0;
	barrier_var(rest);
	return rest + 1;
}

/* Takes and returns the next `bytes` bytes, or returns NULL if they are not all there. */
static __always_inline void *roce_take(struct roce_cursor *cursor, __u32 bytes)
{
	void *taken;

	if (cursor->copy) {
		if (cursor->at > ROCE_COPY_BYTES - bytes || cursor->at + bytes > cursor->copied)
			return NULL;
		taken = cursor->copy + cursor->at;
	} else {
		taken = cursor->pos;
		if (taken + bytes > cursor->end)
			return NULL;
		cursor->pos += bytes;
	}
	cursor->at += bytes;
	return taken;
}

static __always_inline void roce_skip(struct roce_cursor *cursor, __u32 bytes)
{
	cursor->at += bytes;
	if (!cursor->copy)
		cursor->pos += bytes;
}

/* Walks the BTH and a DETH after it. A packet known to be RoCE stays RoCE if it ends early. */
static __always_inline enum roce_found roce_walk_bth(struct roce_cursor *cursor, struct roce *ret)
{
	const struct roce_opcode *opcode;
	__u8 *bth, *deth;

	ret->bth_offset = cursor->at;
	bth = roce_take(cursor, ROCE_BTH_BYTES);
	if (!bth)
		return ROCE_SHORT;
	opcode = &roce_opcodes[bth[0]];
	ret->has_bth = 1;
	ret->opcode = bth[0];
	ret->headers = opcode->headers;
	ret->operation = opcode->operation;
	ret->role = opcode->role;
	ret->bth_flags = bth[1];
	ret->pkey = bpf_ntohs(*(__be16 *)(bth + 2));
	ret->dest_qp = bpf_ntohl(*(__be32 *)(bth + 4)) & 0xffffff;
	ret->ack_req = bth[8] >> 7;
	ret->psn = bpf_ntohl(*(__be32 *)(bth + 8)) & 0xffffff;
	if (!(ret->headers & DETH))
		return ROCE_FOUND;
	if (ret->headers & RDETH && !roce_take(cursor, 4))
		return ROCE_SHORT;
	deth = roce_take(cursor, 8);
	if (!deth)
		return ROCE_SHORT;
	ret->src_qp = bpf_ntohl(*(__be32 *)(deth + 4)) & 0xffffff;
	return ROCE_FOUND;
}

static __always_inline enum roce_found roce_walk_udp(struct roce_cursor *cursor, struct roce *ret)
{
	struct udphdr *udp;

	ret->udp_offset = cursor->at;
	udp = roce_take(cursor, sizeof(*udp));
	if (!udp)
		return ROCE_SHORT;
	if (udp->dest != bpf_htons(ROCE_PORT))
		return ROCE_NONE;
	ret->version = 2;
	ret->sport = bpf_ntohs(udp->source);
	return roce_walk_bth(cursor, ret);
}

static __always_inline enum roce_found roce_walk_ipv4(struct roce_cursor *cursor, struct roce *ret)
{
	struct iphdr *ip = roce_take(cursor, sizeof(*ip));

	if (!ip)
		return ROCE_SHORT;
	/* Only the first fragment has a UDP header. */
	if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x1fff))
		return ROCE_NONE;
	ret->ip_version = 4;
	ret->ip_bytes = bpf_ntohs(ip->tot_len);
	ret->src.words[0] = ip->saddr;
	ret->dst.words[0] = ip->daddr;
	if (ip->ihl > 5) /* fewer are impossible; the decoder reports them */
		roce_skip(cursor, (ip->ihl * 4 - 20) & 0x3c); /* the mask is for the verifier */
	return roce_walk_udp(cursor, ret);
}

static __always_inline void roce_take_ipv6(struct ipv6hdr *ip, struct roce *ret)
{
	ret->ip_version = 6;
	ret->ip_bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	__builtin_memcpy(&ret->src, &ip->saddr, 16);
	__builtin_memcpy(&ret->dst, &ip->daddr, 16);
}

static __always_inline bool roce_is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT ||
	       next == IPPROTO_AH || next == IPPROTO_DSTOPTS || next == IPPROTO_MH;
}

static __always_inline enum roce_found roce_walk_ipv6(struct roce_cursor *cursor, struct roce *ret)
{
	struct ipv6hdr *ip = roce_take(cursor, sizeof(*ip));
	__u8 next, *extension;

	if (!ip)
		return ROCE_SHORT;
	roce_take_ipv6(ip, ret);
	next = ip->nexthdr;
	for (int i = 0; i < ROCE_EXTENSIONS_MAX && next != IPPROTO_UDP; i++) {
		if (!roce_is_extension(next))
			return ROCE_NONE;
		extension = roce_take(cursor, 8);
		if (!extension)
			return ROCE_SHORT;
		if (next == IPPROTO_FRAGMENT) {
			if (*(__be16 *)(extension + 2) & bpf_htons(0xfff8))
				return ROCE_NONE;
		} else if (next == IPPROTO_AH) {
			roce_skip(cursor, extension[1] * 4);
		} else {
			roce_skip(cursor, extension[1] * 8);
		}
		next = extension[0];
	}
	if (next == IPPROTO_UDP)
		return roce_walk_udp(cursor, ret);
	ret->is_endless = roce_is_extension(next);
	return ROCE_NONE;
}

static __always_inline enum roce_found roce_walk_grh(struct roce_cursor *cursor, struct roce *ret)
{
	struct ipv6hdr *grh = roce_take(cursor, sizeof(*grh));

	ret->version = 1;
	if (!grh)
		return ROCE_SHORT;
	roce_take_ipv6(grh, ret);
	if (grh->nexthdr != ROCE_NEXT_HEADER_BTH)
		return ROCE_FOUND;
	return roce_walk_bth(cursor, ret);
}

static __always_inline enum roce_found roce_walk(struct roce_cursor *cursor, struct roce *ret)
{
	struct ethhdr *ethernet = roce_take(cursor, sizeof(*ethernet));
	__be16 type, *tag;

	if (!ethernet)
		return ROCE_SHORT;
	type = ethernet->h_proto;
	for (int i = 0; i < 2; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = roce_take(cursor, 4);
		if (!tag)
			return ROCE_SHORT;
		type = tag[1];
	}
	ret->l3_offset = cursor->at;
	if (type == bpf_htons(ETH_P_IP))
		return roce_walk_ipv4(cursor, ret);
	if (type == bpf_htons(ETH_P_IPV6))
		return roce_walk_ipv6(cursor, ret);
	if (type == bpf_htons(ROCE_ETHERTYPE_V1))
		return roce_walk_grh(cursor, ret);
	return ROCE_NONE;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8[ROCE_COPY_BYTES + ROCE_COPY_ROOM]);
} roce_copies SEC(".maps");

/* Walks the copy. A packet that ends within its headers is RoCE if it names RoCE before that. */
static __always_inline bool roce_walk_copy(__u8 *copy, __u32 copied, struct roce *ret)
{
	struct roce_cursor cursor = {.copy = copy, .copied = copied};
	enum roce_found found;

	__builtin_memset(ret, 0, sizeof(*ret));
	found = roce_walk(&cursor, ret);
	return found == ROCE_FOUND || (found == ROCE_SHORT && ret->version);
}

static __noinline bool roce_parse_paged_xdp(struct xdp_md *ctx, __u32 length, struct roce *ret)
{
	__u32 key = 0, bytes = length < ROCE_COPY_BYTES ? length : ROCE_COPY_BYTES;
	__u8 *copy = bpf_map_lookup_elem(&roce_copies, &key);

	bytes = roce_within(bytes, ROCE_COPY_BYTES);
	if (!copy || !bytes || !ret || bpf_xdp_load_bytes(ctx, 0, copy, bytes))
		return false;
	return roce_walk_copy(copy, bytes, ret);
}

static __noinline bool roce_parse_paged_skb(struct __sk_buff *skb, struct roce *ret)
{
	__u32 key = 0, bytes = skb->len < ROCE_COPY_BYTES ? skb->len : ROCE_COPY_BYTES;
	__u8 *copy = bpf_map_lookup_elem(&roce_copies, &key);

	bytes = roce_within(bytes, ROCE_COPY_BYTES);
	if (!copy || !bytes || !ret || bpf_skb_load_bytes(skb, 0, copy, bytes))
		return false;
	return roce_walk_copy(copy, bytes, ret);
}

/* Returns whether the packet is RoCE; ret is valid only then (its source and is_endless: for IPv6 in any case).
 * length: bpf_xdp_get_buff_len(ctx), or the linear length in a program that is not of section xdp.frags. */
static __always_inline bool roce_parse_xdp(struct xdp_md *ctx, __u32 length, struct roce *ret)
{
	struct roce_cursor cursor = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	enum roce_found found;

	__builtin_memset(ret, 0, sizeof(*ret));
	found = roce_walk(&cursor, ret);
	if (found != ROCE_SHORT)
		return found == ROCE_FOUND;
	if (length > ctx->data_end - ctx->data)
		return roce_parse_paged_xdp(ctx, length, ret);
	return ret->version;
}

static __always_inline bool roce_parse_skb(struct __sk_buff *skb, struct roce *ret)
{
	struct roce_cursor cursor = {
		.pos = (void *)(long)skb->data,
		.end = (void *)(long)skb->data_end,
	};
	enum roce_found found;

	__builtin_memset(ret, 0, sizeof(*ret));
	found = roce_walk(&cursor, ret);
	if (found != ROCE_SHORT)
		return found == ROCE_FOUND;
	if (skb->len > skb->data_end - skb->data)
		return roce_parse_paged_skb(skb, ret);
	return ret->version;
}

#endif
