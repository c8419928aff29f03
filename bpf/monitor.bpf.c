/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The program follows RPC-over-RDMA: calls and their replies, per connection and per session, at tc ingress and egress.
 *
 * The connection of a packet, not the hook, tells which way it goes: the interface may be the server's, a client's or
 * one between them. Packets are only read. A packet may be a train of segments (GSO, GRO), each with a BTH of its
 * own. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/monitor_calls.h"
#include "bpf/monitor_connections.h"
#include "bpf/monitor_learning.h"
#include "bpf/monitor_message.h"
#include "bpf/monitor_scratch.h"
#include "bpf/monitor_tables.h"
#include "bpf/roce.h"

#define TCX_NEXT -1
#define READ_REQUEST_BYTES 28
#define ICRC_BYTES 4
#define RETH_BYTES 16
#define BTH_AETH_BYTES 16 /* also the BTH and an ICRC: no packet is shorter */
#define DETH_BYTES 8
#define PSN_KNOWN (1u << 24)
#define SEGMENTS_OF_TRAIN 1024
#define SEGMENTS_AT_ONCE 2

/* RC (IBA 9.2.1); UD SEND ONLY. */
enum {
	RC_SEND_FIRST = 0x00,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_FIRST = 0x06,
	RC_WRITE_MIDDLE = 0x07,
	RC_WRITE_ONLY = 0x0a,
	RC_READ_REQUEST = 0x0c,
	RC_READ_RESPONSE_FIRST = 0x0d,
	RC_READ_RESPONSE_MIDDLE = 0x0e,
	RC_READ_RESPONSE_ONLY = 0x10,
	RC_ACK = 0x11,
	RC_ATOMIC_ACK = 0x12,
	RC_SEND_ONLY_INV = 0x17,
	RC_LAST_CODE = 0x1f,
	UD_SEND_ONLY = 0x64,
};

enum { AETH_RNR_NAK = 0x20, AETH_NAK = 0x60 };

/* Returns, on lo, where each packet passes both hooks, whether this is egress. */
static __always_inline bool is_leaving(const struct __sk_buff *skb)
{
	return !skb->ingress_ifindex;
}

__noinline int on_cm(struct __sk_buff *skb, struct walk *walk, __u32 at)
{
	struct scratch *scratch = find_scratch();

	if (!walk || !scratch || (skb->ifindex == LOOPBACK && is_leaving(skb)))
		return 0;
	walk->from = walk->to = 0;
	if (!bpf_skb_load_bytes(skb, at, scratch->window, CM_BYTES))
		on_mad(scratch->window, &walk->key, walk->ip_version);
	return 0;
}

static __always_inline bool is_same(const struct ldma_monitor_key *one,
				    const struct ldma_monitor_key *other)
{
	const __u64 *a = (const __u64 *)one, *b = (const __u64 *)other;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] &&
	       one->qpn == other->qpn;
}

static __always_inline void look_up(struct walk *walk, struct scratch *scratch)
{
	struct recent_place *recent = &scratch->places[walk->key.qpn % RECENT_PLACES];
	struct ldma_monitor_place *place;
	__u32 now = generation;

	if (recent->generation != now || !is_same(&recent->key, &walk->key)) {
		place = bpf_map_lookup_elem(&places, &walk->key);
		recent->key = walk->key;
		recent->generation = now;
		recent->place.connection = place ? place->connection : LDMA_MONITOR_NONE;
		recent->place.way = place ? place->way : 0;
	}
	walk->place = recent->place;
}

/* Returns whether the queue pair belongs to a connection, and its packets count at this hook. */
static __always_inline bool find_place(struct __sk_buff *skb, struct walk *walk,
				       struct scratch *scratch, __u32 qpn)
{
	if (walk->key.qpn != qpn) {
		walk->key.qpn = qpn;
		look_up(walk, scratch);
	}
	if (walk->place.connection == LDMA_MONITOR_NONE)
		return false;
	/* On lo, a call counts when it arrives and a reply when it leaves, as on any interface of the server's. */
	return skb->ifindex != LOOPBACK ||
	       is_leaving(skb) == (walk->place.way == LDMA_MONITOR_TO_CLIENT);
}

/* Returns the kind of error in an acknowledgement's AETH (IBA 9.7.5.2.1); 0: it is no error. */
static __always_inline __u32 aeth_error(const __u8 *bth)
{
	return bth[ROCE_BTH_BYTES] & AETH_NAK;
}

/* Takes note of the PSNs from psn to psn + count - 1 that went that way. Returns how many of them had been seen
 * before. */
static __always_inline __u32 see_psn(struct ldma_monitor_connection *connection, __u32 way,
				     __u32 psn, __u32 count)
{
	__u32 *highest = &connection->flows[way % LDMA_MONITOR_WAYS].psn;
	__u32 last = (psn + count - 1) & 0xffffff, known = *highest;
	__s32 ahead, again;

	if (!known) {
		*highest = last | PSN_KNOWN;
		return 0;
	}
	ahead = (__s32)((last - known) << 8) >> 8;
	if (ahead > 0)
		*highest = last | PSN_KNOWN;
	again = (__s32)count - ahead;
	return again <= 0 ? 0 : again > (__s32)count ? count : (__u32)again;
}

static __always_inline __u32 packets_of_read(struct __sk_buff *skb, __u32 at, __u32 mtu_bytes)
{
	__be32 length;

	if (!mtu_bytes || bpf_skb_load_bytes(skb, at + READ_REQUEST_BYTES - 4, &length, 4))
		return 1;
	length = bpf_ntohl(length);
	return length > mtu_bytes && length < 1u << 31 ? (length + mtu_bytes - 1) / mtu_bytes : 1;
}

static __always_inline __u32 psn_of(const __u8 *bth)
{
	return bpf_ntohl(*(const __be32 *)(bth + 8)) & 0xffffff;
}

static __always_inline __u32 qpn_of(const __u8 *bth)
{
	return bpf_ntohl(*(const __be32 *)(bth + 4)) & 0xffffff;
}

/* Returns a BTH's opcode and queue pair. */
static __always_inline __u32 whose(const __u8 *bth)
{
	return (__u32)bth[0] << 24 | qpn_of(bth);
}

/* Returns whether the segments `from` to `to` are a stretch of one kind, of which the last may end the message. The
 * first and the last show it: they are of that kind, and their PSNs as far apart as they are. */
static __always_inline bool is_stretch(struct __sk_buff *skb, const struct walk *walk, __u32 from,
				       __u32 to, __u32 whose_it_is, __u32 psn)
{
	__u32 at = walk->payload + to * walk->size;
	__u8 other[ROCE_BTH_BYTES];

	if (bpf_skb_load_bytes(skb, at, other, sizeof(other)))
		return false;
	return (whose(other) == whose_it_is || whose(other) == whose_it_is + (1u << 24)) &&
	       psn_of(other) == ((psn + to - from) & 0xffffff);
}

/* Returns how many segments from this one on need no look of their own. The last of a train may be another message. */
__noinline int stretch(struct __sk_buff *skb, const struct walk *walk, __u32 from,
		       __u32 whose_it_is, __u32 psn)
{
	__u32 rest;

	if (!walk)
		return 1;
	rest = walk->count - from;
	if (rest < 3 || rest > SEGMENTS_OF_TRAIN)
		return 1;
	if (is_stretch(skb, walk, from, walk->count - 1, whose_it_is, psn))
		return rest;
	if (is_stretch(skb, walk, from, walk->count - 2, whose_it_is, psn))
		return rest - 1;
	return 1;
}

/* Returns whether the packet is of the middle of a message. A packet that begins a message in between would be longer
 * (WRITEs have an RETH, first responses an AETH) or of another kind, which a packet of this kind could not follow. */
static __always_inline bool is_middle(const __u8 *bth)
{
	return bth[0] == RC_WRITE_MIDDLE || bth[0] == RC_READ_RESPONSE_MIDDLE;
}

/* Returns whether the packet is a whole WRITE that fills it: no other packet of that length could be in between. */
static __always_inline bool is_full_write(const struct walk *walk, const __u8 *bth,
					  const struct ldma_monitor_connection *connection)
{
	return bth[0] == RC_WRITE_ONLY && connection->mtu_bytes &&
	       walk->size == ROCE_BTH_BYTES + RETH_BYTES + connection->mtu_bytes + ICRC_BYTES;
}

/* Learns the MTU of a connection that was made before the monitor: a message's first packet is full. */
static __always_inline void learn_mtu(struct ldma_monitor_connection *connection, __u32 opcode,
				      __u32 length)
{
	__u32 bytes = length - ROCE_BTH_BYTES - ICRC_BYTES;

	if (opcode == RC_WRITE_FIRST)
		bytes -= RETH_BYTES;
	else if (opcode != RC_SEND_FIRST)
		return;
	if (!connection->mtu_bytes && bytes >= 256 && bytes <= 4096 && !(bytes & (bytes - 1)))
		connection->mtu_bytes = bytes;
}

/* Makes sure that these bytes of the packet are in the window. */
static __always_inline bool load(struct __sk_buff *skb, struct walk *walk, struct scratch *scratch,
				 __u32 at, __u32 length)
{
	length = roce_within(length < WINDOW_BYTES ? length : WINDOW_BYTES, WINDOW_BYTES);
	if (!length || bpf_skb_load_bytes(skb, at, scratch->window, length))
		return false;
	walk->from = at;
	walk->to = at + length;
	return true;
}

static __always_inline bool begins_send(__u32 opcode)
{
	return opcode == RC_SEND_FIRST || opcode == RC_SEND_ONLY || opcode == RC_SEND_ONLY_IMM ||
	       opcode == RC_SEND_ONLY_INV;
}

/* Finds the message that a packet begins: it is from `start` to `end` of the window. Returns false if the packet begins
 * no SEND. at, length: of its segment, from the BTH on. */
static __always_inline bool find_message(struct __sk_buff *skb, struct walk *walk,
					 struct scratch *scratch, __u32 opcode, __u32 at,
					 __u32 length, __u32 *start, __u32 *end)
{
	if (!begins_send(opcode))
		return false;
	*start = at + ROCE_BTH_BYTES;
	if (opcode == RC_SEND_ONLY_IMM || opcode == RC_SEND_ONLY_INV)
		*start += 4;
	length -= ICRC_BYTES;
	if (length > LOOK_BYTES - ICRC_BYTES) {
		length = LOOK_BYTES;
		if (!load(skb, walk, scratch, at, LOOK_BYTES))
			return false;
	}
	*start -= walk->from;
	*end = length + at - walk->from;
	return true;
}

/* Takes a packet of a connection. at, length: of its segment, from the BTH on. */
static __always_inline void on_packet(struct __sk_buff *skb, struct walk *walk,
				      struct scratch *scratch, const __u8 *bth, __u32 at,
				      __u32 length, __u32 count)
{
	struct ldma_monitor_connection *connection;
	__u32 psns, again, start, end;

	if (bth[0] >= RC_READ_RESPONSE_FIRST && bth[0] <= RC_READ_RESPONSE_ONLY)
		return;
	connection = bpf_map_lookup_elem(&connections, &walk->place.connection);
	if (!connection || bth[0] == RC_ATOMIC_ACK)
		return;
	if (bth[0] == RC_ACK) {
		if (aeth_error(bth) == AETH_RNR_NAK)
			__sync_fetch_and_add(&connection->rnr_naks, 1);
		else if (aeth_error(bth) == AETH_NAK)
			__sync_fetch_and_add(&connection->naks, 1);
		return;
	}
	learn_mtu(connection, bth[0], length);
	if (is_full_write(walk, bth, connection)) {
		count = stretch(skb, walk, walk->next - 1, whose(bth), psn_of(bth));
		walk->next += count - 1;
	}
	psns = bth[0] == RC_READ_REQUEST ? packets_of_read(skb, at, connection->mtu_bytes) : count;
	again = see_psn(connection, walk->place.way, psn_of(bth), psns);
	if (again)
		__sync_fetch_and_add(&connection->retransmissions, again < count ? again : count);
	if (!find_message(skb, walk, scratch, bth[0], at, length, &start, &end))
		return;
	if (walk->place.way == LDMA_MONITOR_TO_SERVER)
		on_call(walk, scratch, connection, start, end, again);
	else
		on_answer(walk, scratch, connection, start, end, again);
}

/* Returns whether the packet leaves by an interface; a forwarded one has come in at another. */
static __always_inline bool leaves(const struct __sk_buff *skb)
{
	return skb->ingress_ifindex != skb->ifindex;
}

/* Reads a packet of no connection. The arguments are those of find_message(). Returns an enum strange_kind. */
__noinline int look_at_stranger(struct __sk_buff *skb, struct walk *walk, __u32 opcode, __u32 at,
				__u32 length)
{
	struct scratch *scratch = find_scratch();
	__u32 start, end;

	if (!walk || !scratch || (skb->ifindex == LOOPBACK && leaves(skb)) ||
	    !find_message(skb, walk, scratch, opcode, at, length, &start, &end))
		return STRANGE_NONE;
	return read_strange(scratch, start, end);
}

/* Learns from what look_at_stranger() has read just before. */
__noinline int learn_of_stranger(struct __sk_buff *skb, struct walk *walk, __u32 kind)
{
	if (walk)
		learn_from(walk, kind, skb->ifindex, leaves(skb));
	return 0;
}

static __always_inline void on_stranger(struct __sk_buff *skb, struct walk *walk, __u32 opcode,
					__u32 at, __u32 length)
{
	int kind = look_at_stranger(skb, walk, opcode, at, length);

	if (kind != STRANGE_NONE)
		learn_of_stranger(skb, walk, kind);
}

/* Takes the next segment. */
static __always_inline void on_segment(struct __sk_buff *skb, struct walk *walk,
				       struct scratch *scratch)
{
	__u32 at = walk->payload + walk->next * walk->size, left = skb->len - at;
	__u32 length = left < walk->size ? left : walk->size, count = 1;
	const __u8 *bth;

	if (at > skb->len || length < BTH_AETH_BYTES)
		goto next;
	/* Of a long segment, loads only as much as tells what it is: most are data. Short ones are loaded together. */
	if (length > LOOK_BYTES)
		left = BTH_AETH_BYTES;
	if ((at < walk->from || at + length > walk->to) && !load(skb, walk, scratch, at, left))
		goto next;
	bth = scratch->window + ((at - walk->from) & (WINDOW_BYTES - 1));
	if (is_middle(bth))
		count = stretch(skb, walk, walk->next, whose(bth), psn_of(bth));
	walk->next += count;
	if (bth[0] == UD_SEND_ONLY && qpn_of(bth) == 1)
		on_cm(skb, walk, at + ROCE_BTH_BYTES + DETH_BYTES);
	else if (bth[0] <= RC_LAST_CODE && find_place(skb, walk, scratch, qpn_of(bth)))
		on_packet(skb, walk, scratch, bth, at, length, count);
	else if (learns && begins_send(bth[0]) && walk->place.connection == LDMA_MONITOR_NONE)
		on_stranger(skb, walk, bth[0], at, length);
	return;
next:
	walk->next++;
}

struct train {
	struct __sk_buff *skb;
	struct scratch *scratch;
	struct walk walk;
};

/* Takes several segments in one call: on CPUs that guard returns, returns are what costs. */
static long some_segments(__u32 index, void *data)
{
	struct train *train = data;

	(void)index;
#pragma nounroll
	for (int i = 0; i < SEGMENTS_AT_ONCE && train->walk.next < train->walk.count; i++)
		on_segment(train->skb, &train->walk, train->scratch);
	return train->walk.next >= train->walk.count;
}

__noinline int begin_at_any(struct __sk_buff *skb, struct walk *walk)
{
	struct roce roce;

	if (!walk || !roce_parse_skb(skb, &roce) || roce.version != 2 || !roce.has_bth)
		return 0;
	__builtin_memcpy(walk->key.from, &roce.src, 16);
	__builtin_memcpy(walk->key.to, &roce.dst, 16);
	walk->ip_version = roce.ip_version;
	walk->payload = roce.bth_offset;
	walk->size = roce.l3_offset + roce.ip_bytes - roce.bth_offset;
	return 1;
}

/* Returns whether the packet is RoCEv2; then the walk begins at its first segment. */
static __always_inline bool begin(struct __sk_buff *skb, struct walk *walk)
{
	const struct ethhdr *ethernet = (void *)(long)skb->data;
	const struct iphdr *ip = (void *)(ethernet + 1);
	const struct udphdr *udp = (void *)(ip + 1);
	const __u8 *bth = (void *)(udp + 1);

	walk->place.connection = LDMA_MONITOR_NONE;
	/* Nearly all packets are Ethernet, IPv4 without options, UDP, all in one piece. */
	if ((void *)(udp + 1) <= (void *)(long)skb->data_end &&
	    ethernet->h_proto == bpf_htons(ETH_P_IP) && ip->ihl == 5 &&
	    ip->protocol == IPPROTO_UDP && !(ip->frag_off & bpf_htons(0x1fff))) {
		if (udp->dest != bpf_htons(ROCE_PORT) ||
		    bpf_ntohs(ip->tot_len) < sizeof(*ip) + sizeof(*udp))
			return false;
		/* Every third of them is an ACK that tells nothing. */
		if ((void *)(bth + BTH_AETH_BYTES) <= (void *)(long)skb->data_end &&
		    bth[0] == RC_ACK && !aeth_error(bth) && !skb->gso_size)
			return false;
		*(__be32 *)walk->key.from = ip->saddr;
		*(__be32 *)walk->key.to = ip->daddr;
		walk->ip_version = 4;
		walk->payload = sizeof(*ethernet) + sizeof(*ip) + sizeof(*udp);
		/* The size is what the IP header says: Ethernet pads short frames. */
		walk->size = bpf_ntohs(ip->tot_len) - sizeof(*ip) - sizeof(*udp);
		return true;
	}
	return begin_at_any(skb, walk);
}

/* Runs at ingress and at egress. */
SEC("tc")
int monitor(struct __sk_buff *skb)
{
	struct train train = {.skb = skb};
	struct walk *walk = &train.walk;

	if (!begin(skb, walk))
		return TCX_NEXT;
	train.scratch = find_scratch();
	if (!train.scratch)
		return TCX_NEXT;
	walk->count = 1;
	if (skb->gso_size) {
		walk->size = skb->gso_size;
		walk->count = (skb->len - walk->payload + walk->size - 1) / walk->size;
	}
	bpf_loop(walk->count < SEGMENTS_OF_TRAIN ? walk->count : SEGMENTS_OF_TRAIN, some_segments,
		 &train, 0);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
