/* Follows RPC-over-RDMA: calls and their replies, per connection and per session, at tc ingress and egress.
 *
 * Which way a packet goes is told by the connection that it belongs to, not by the hook: the interface may be the
 * server's, a client's or one between them. Packets are only looked at. A packet may be a train of segments (GSO, GRO),
 * each with a BTH of its own. */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "monitor_calls.h"
#include "monitor_connections.h"
#include "monitor_message.h"
#include "monitor_tables.h"
#include "roce.h"

#define LOOPBACK 1 /* the index of lo, in each network namespace */
#define TCX_NEXT -1
#define READ_REQUEST_BYTES 28
#define ICRC_BYTES 4
#define DETH_BYTES 8
#define PSN_KNOWN (1u << 24)
#define SEGMENTS_OF_TRAIN 1024
#define RECENT 64

/* RC (IBA 9.2.1); UD SEND ONLY. */
enum {
	RC_SEND_FIRST = 0x00,
	RC_SEND_ONLY = 0x04,
	RC_SEND_ONLY_IMM = 0x05,
	RC_WRITE_MIDDLE = 0x07,
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

/* A SEND's first packet: its payload is from `at` to `end`. */
__noinline int on_message(struct __sk_buff *skb, struct walk *walk, __u32 at, __u32 end,
			  __u32 is_again)
{
	struct ldma_monitor_connection *connection;
	struct seen_call seen = {.kind = LDMA_MONITOR_OTHER};
	__u32 length = end - at;
	__u8 *bytes = message_bytes();
	struct rpcrdma header;
	int body;

	if (!walk || !bytes)
		return 0;
	if (end < at + 16)
		goto unreadable;
	if (length > MESSAGE_BYTES)
		length = MESSAGE_BYTES;
	if (!length || bpf_skb_load_bytes(skb, at, bytes, length))
		return 0;
	body = read_header(length, &header);
	if (body < 0)
		goto unreadable;
	if (walk->place.way == LDMA_MONITOR_TO_CLIENT) {
		if (header.proc != RPCRDMA_DONE)
			on_answer(walk, &header, body, length, is_again);
		return 0;
	}
	if (header.proc > RPCRDMA_NOMSG || (body && !read_call(body, length, &seen)))
		return 0;
	connection = bpf_map_lookup_elem(&connections, &walk->place.connection);
	if (connection)
		connection->credits_asked = header.credits;
	return open_call(walk, &header, &seen, is_again);
unreadable:
	if (!is_again)
		__sync_fetch_and_add(&losses.unreadable, 1);
	return 0;
}

/* On lo, where each packet passes both hooks: whether this is egress. */
static __always_inline bool is_leaving(const struct __sk_buff *skb)
{
	return !skb->ingress_ifindex;
}

__noinline int on_cm(struct __sk_buff *skb, struct walk *walk, __u32 at)
{
	__u8 *bytes = message_bytes();

	if (!walk || !bytes || (skb->ifindex == LOOPBACK && is_leaving(skb)))
		return 0;
	if (!bpf_skb_load_bytes(skb, at, bytes, CM_BYTES))
		on_mad(bytes, &walk->key, walk->ip_version);
	return 0;
}

/* What was found lately, for each CPU: looking into the map takes longer than comparing. */
struct recent {
	struct ldma_monitor_key key;
	__u32 generation;
	struct ldma_monitor_place place;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECENT);
	__type(key, __u32);
	__type(value, struct recent);
} recents SEC(".maps");

static __always_inline bool is_same(const struct ldma_monitor_key *one,
				    const struct ldma_monitor_key *other)
{
	const __u64 *a = (const __u64 *)one, *b = (const __u64 *)other;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] &&
	       one->qpn == other->qpn;
}

static __always_inline void look_up(struct walk *walk)
{
	__u32 at = walk->key.qpn % RECENT, now = generation;
	struct recent *recent = bpf_map_lookup_elem(&recents, &at);
	struct ldma_monitor_place *place;

	if (!recent)
		return;
	if (recent->generation != now || !is_same(&recent->key, &walk->key)) {
		place = bpf_map_lookup_elem(&places, &walk->key);
		recent->key = walk->key;
		recent->generation = now;
		recent->place.connection = place ? place->connection : LDMA_MONITOR_NONE;
		recent->place.way = place ? place->way : 0;
	}
	walk->place = recent->place;
}

/* Whether the queue pair is one of a connection's, and this hook is where its packets count. */
static __always_inline bool find_place(struct __sk_buff *skb, struct walk *walk, __u32 qpn)
{
	if (walk->key.qpn != qpn) {
		walk->key.qpn = qpn;
		look_up(walk);
	}
	if (walk->place.connection == LDMA_MONITOR_NONE)
		return false;
	/* On lo, a call counts when it arrives and a reply when it leaves, as on any interface of the server's. */
	return skb->ifindex != LOOPBACK ||
	       is_leaving(skb) == (walk->place.way == LDMA_MONITOR_TO_CLIENT);
}

/* The PSNs from psn to psn + count - 1 went that way; how many of them had been seen before. */
static __always_inline __u32 see_psn(struct ldma_monitor_connection *connection, __u32 way,
				     __u32 psn, __u32 count)
{
	__u32 *highest = &connection->psn[way % LDMA_MONITOR_WAYS];
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

/* Whether the segments from the one that is next to that one are the middle of one message, or this and its end: such
 * are the first and the last of them, and as far apart as PSNs are. What begins a message in between would be longer
 * (WRITEs have an RETH, first responses an AETH) or of another kind, which could not be followed by its like. */
static __always_inline bool is_stretch(struct __sk_buff *skb, const struct walk *walk, __u32 last)
{
	__u32 at = walk->payload + last * walk->size;
	__u8 bth[ROCE_BTH_BYTES];

	if (bpf_skb_load_bytes(skb, at, bth, sizeof(bth)))
		return false;
	return (bth[0] == walk->bth[0] || bth[0] == walk->bth[0] + 1) &&
	       qpn_of(bth) == qpn_of(walk->bth) &&
	       psn_of(bth) == ((psn_of(walk->bth) + last - walk->next) & 0xffffff);
}

/* How many segments from the next one on need no look of their own. The last of a train may be another message. */
static __always_inline __u32 stretch(struct __sk_buff *skb, const struct walk *walk)
{
	__u32 rest = walk->count - walk->next;

	if (rest < 3 ||
	    (walk->bth[0] != RC_WRITE_MIDDLE && walk->bth[0] != RC_READ_RESPONSE_MIDDLE))
		return 1;
	if (is_stretch(skb, walk, walk->count - 1))
		return rest;
	if (is_stretch(skb, walk, walk->count - 2))
		return rest - 1;
	return 1;
}

/* The segment that is next. */
__noinline int on_segment(struct __sk_buff *skb, struct walk *walk)
{
	struct ldma_monitor_connection *connection;
	__u32 at, end, count, again, psn;
	const __u8 *bth;

	if (!walk)
		return 0;
	bth = walk->bth;
	at = walk->payload + walk->next * walk->size;
	end = at + walk->size;
	if (end > skb->len)
		end = skb->len;
	if (!walk->has_bth && bpf_skb_load_bytes(skb, at, walk->bth, sizeof(walk->bth))) {
		walk->next++;
		return 0;
	}
	walk->has_bth = 0;
	count = stretch(skb, walk);
	walk->next += count;
	if (bth[0] == UD_SEND_ONLY && qpn_of(bth) == 1)
		return on_cm(skb, walk, at + ROCE_BTH_BYTES + DETH_BYTES);
	if (bth[0] > RC_LAST_CODE || !find_place(skb, walk, qpn_of(bth)))
		return 0;
	if (bth[0] >= RC_READ_RESPONSE_FIRST && bth[0] <= RC_READ_RESPONSE_ONLY)
		return 0;
	connection = bpf_map_lookup_elem(&connections, &walk->place.connection);
	if (!connection || bth[0] == RC_ATOMIC_ACK)
		return 0;
	if (bth[0] == RC_ACK) {
		/* AETH (IBA 9.7.5.2.1) */
		if ((bth[12] & 0x60) == 0x20)
			__sync_fetch_and_add(&connection->rnr_naks, 1);
		else if ((bth[12] & 0x60) == 0x60)
			__sync_fetch_and_add(&connection->naks, 1);
		return 0;
	}
	psn = count;
	if (bth[0] == RC_READ_REQUEST)
		psn = packets_of_read(skb, at, connection->mtu_bytes);
	again = see_psn(connection, walk->place.way, psn_of(bth), psn);
	if (again)
		__sync_fetch_and_add(&connection->retransmissions, again < count ? again : count);
	if (bth[0] == RC_SEND_FIRST || bth[0] == RC_SEND_ONLY)
		on_message(skb, walk, at + ROCE_BTH_BYTES, end - ICRC_BYTES, again);
	else if (bth[0] == RC_SEND_ONLY_IMM || bth[0] == RC_SEND_ONLY_INV)
		on_message(skb, walk, at + ROCE_BTH_BYTES + 4, end - ICRC_BYTES, again);
	return 0;
}

struct train {
	struct __sk_buff *skb;
	struct walk walk;
};

static long each_segment(__u32 index, void *data)
{
	struct train *train = data;

	(void)index;
	if (train->walk.next >= train->walk.count)
		return 1;
	on_segment(train->skb, &train->walk);
	return 0;
}

/* What nearly all packets are: Ethernet, IPv4 without options, UDP, all in one piece. */
struct plain {
	struct ethhdr ethernet;
	struct iphdr ip;
	struct udphdr udp;
	__u8 bth[BTH_AETH_BYTES];
} __attribute__((packed));

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

/* Whether the packet is RoCEv2: then the walk begins at its first segment. */
static __always_inline bool begin(struct __sk_buff *skb, struct walk *walk)
{
	const struct plain *plain = (void *)(long)skb->data;

	walk->place.connection = LDMA_MONITOR_NONE;
	if ((void *)(plain + 1) <= (void *)(long)skb->data_end &&
	    plain->ethernet.h_proto == bpf_htons(ETH_P_IP) && plain->ip.ihl == 5 &&
	    plain->ip.protocol == IPPROTO_UDP && !(plain->ip.frag_off & bpf_htons(0x1fff))) {
		if (plain->udp.dest != bpf_htons(ROCE_PORT))
			return false;
		*(__be32 *)walk->key.from = plain->ip.saddr;
		*(__be32 *)walk->key.to = plain->ip.daddr;
		walk->ip_version = 4;
		walk->payload = offsetof(struct plain, bth);
		/* What the IP header says: Ethernet pads short frames. */
		walk->size = bpf_ntohs(plain->ip.tot_len) - sizeof(plain->ip) - sizeof(plain->udp);
		__builtin_memcpy(walk->bth, plain->bth, sizeof(walk->bth));
		walk->has_bth = 1;
		return true;
	}
	return begin_at_any(skb, walk);
}

/* At ingress and egress. */
SEC("tc")
int monitor(struct __sk_buff *skb)
{
	struct train train = {.skb = skb};
	struct walk *walk = &train.walk;

	if (!begin(skb, walk))
		return TCX_NEXT;
	walk->count = 1;
	if (skb->gso_size) {
		walk->size = skb->gso_size;
		walk->count = (skb->len - walk->payload + walk->size - 1) / walk->size;
	}
	on_segment(skb, walk);
	if (walk->next < walk->count)
		bpf_loop(SEGMENTS_OF_TRAIN, each_segment, &train, 0);
	return TCX_NEXT;
}

char LICENSE[] SEC("license") = "GPL";
