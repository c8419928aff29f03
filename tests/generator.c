/* SPDX-License-Identifier: BSD-2-Clause */
#include "generator.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "base/bytes.h"
#include "wire/packet.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#define ROCE_PORT 4791
#define MESSAGES 64
#define PACKET_MAX 9728
#define UDP_HEADERS(packet) ((packet)->ip_version == 4 ? 28u : 48u)

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Sleeps while the time is far away, then spins: a sleep ends some 60 us late. */
static void wait_until(int64_t due_ns)
{
	int64_t left_ns;

	while ((left_ns = due_ns - now_ns()) > 0) {
		struct timespec pause = {.tv_nsec = left_ns - 100000};

		if (left_ns > 200000 && left_ns < 1000000000)
			nanosleep(&pause, NULL);
	}
}

static void fill_payload(uint8_t *payload, uint32_t bytes, uint64_t i)
{
	memset(payload, (int)(i & 0xff), bytes);
	if (bytes >= 4)
		put32(payload, (uint32_t)i);
}

/* Builds one packet of the flow as the socket takes it. Returns its length, 0 if it cannot be built. */
static size_t build(const struct generator_flow *flow, uint64_t i, uint32_t segment, uint8_t *buf)
{
	struct ldma_packet packet = {
		.version = flow->version,
		.ip_version = flow->ip_version,
		.ttl = 64,
		.sport = flow->sport,
		.dport = ROCE_PORT,
		.ip_id = (uint16_t)(flow->ip_id + segment),
		.opcode = flow->opcode,
		.pkey = 0xffff,
		.dest_qp = flow->dest_qp,
		.src_qp = flow->src_qp,
		.psn = (uint32_t)(flow->psn + i) & 0xffffff,
		.dma_length = flow->payload_bytes,
	};
	uint8_t payload[PACKET_MAX];
	size_t bytes, cut;

	memcpy(packet.src, flow->src, sizeof(packet.src));
	memcpy(packet.dst, flow->dst, sizeof(packet.dst));
	fill_payload(payload, flow->payload_bytes, i);
	if (!flow->by_udp) {
		memcpy(buf, flow->link, flow->link_bytes);
		bytes = ldma_packet_encode(&packet, payload, flow->payload_bytes,
					   buf + flow->link_bytes, PACKET_MAX);
		return bytes ? bytes + flow->link_bytes : 0;
	}
	bytes = ldma_packet_encode(&packet, payload, flow->payload_bytes, buf, PACKET_MAX);
	if (!bytes)
		return 0;
	cut = UDP_HEADERS(&packet);
	memmove(buf, buf + cut, bytes - cut);
	return bytes - cut;
}

/* Sends all messages, even if the socket takes a few at a time. */
static int send_all(int fd, struct mmsghdr *messages, unsigned int count)
{
	unsigned int sent = 0;
	int n;

	while (sent < count) {
		n = sendmmsg(fd, messages + sent, count - sent, 0);
		if (n >= 0)
			sent += (unsigned int)n;
		else if (errno == ENOBUFS || errno == EAGAIN)
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1);
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

struct outbox {
	struct mmsghdr messages[MESSAGES];
	struct iovec parts[MESSAGES];
	uint8_t bytes[];
};

/* Returns the length of the address, 0 for a packet socket. */
static socklen_t address(const struct generator_flow *flow, struct sockaddr_storage *ret)
{
	struct sockaddr_in to4 = {.sin_family = AF_INET, .sin_port = htons(ROCE_PORT)};
	struct sockaddr_in6 to6 = {.sin6_family = AF_INET6, .sin6_port = htons(ROCE_PORT)};

	if (!flow->by_udp)
		return 0;
	memcpy(&to4.sin_addr, flow->dst, sizeof(to4.sin_addr));
	memcpy(&to6.sin6_addr, flow->dst, sizeof(to6.sin6_addr));
	if (flow->ip_version == 4) {
		memcpy(ret, &to4, sizeof(to4));
		return sizeof(to4);
	}
	memcpy(ret, &to6, sizeof(to6));
	return sizeof(to6);
}

int64_t generator_send(int fd, const struct generator_flow *flow)
{
	struct sockaddr_storage to;
	socklen_t to_bytes = address(flow, &to);
	uint32_t segments = flow->segments > 1 ? flow->segments : 1, n, s;
	uint32_t step = flow->rate > 0 && flow->rate < 500000 ? 8 : MESSAGES;
	size_t room = (size_t)segments * PACKET_MAX;
	struct outbox *box = calloc(1, sizeof(*box) + MESSAGES * room);
	int64_t start_ns = now_ns();
	uint64_t i = 0;
	int err = box ? 0 : -ENOMEM;

	while (!err && i < flow->count) {
		uint64_t first = i;

		for (n = 0; n < step && i < flow->count && !err; n++) {
			uint8_t *buf = box->bytes + n * room;
			size_t bytes = 0, size = 0;

			for (s = 0; s < segments && i < flow->count; s++, i++) {
				if (flow->repeat && first)
					continue;
				size = build(flow, flow->first + i, s, buf + bytes);
				if (!size)
					err = -EINVAL;
				if (segments > 1 && s == 0 &&
				    setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &(int){(int)size},
					       sizeof(int)))
					err = -errno;
				bytes += size;
			}
			if (flow->repeat && first)
				continue;
			box->parts[n] = (struct iovec){.iov_base = buf, .iov_len = bytes};
			box->messages[n].msg_hdr = (struct msghdr){
				.msg_name = to_bytes ? &to : NULL,
				.msg_namelen = to_bytes,
				.msg_iov = &box->parts[n],
				.msg_iovlen = 1,
			};
		}
		if (!err && flow->rate > 0)
			wait_until(start_ns + (int64_t)((double)first * 1e9 / flow->rate));
		if (!err)
			err = send_all(fd, box->messages, n);
	}
	free(box);
	return err ? err : (int64_t)i;
}

static void check(const struct generator_flow *flow, const uint8_t *bth, size_t bytes,
		  uint32_t *next_psn, struct generator_result *ret)
{
	size_t headers = LDMA_BTH_BYTES + ldma_opcodes[flow->opcode].headers_bytes;
	uint8_t payload[PACKET_MAX];
	uint64_t i;
	uint32_t psn;

	ret->packets++;
	ret->bytes += bytes;
	if (bytes != headers + flow->payload_bytes + LDMA_ICRC_BYTES) {
		ret->wrong++;
		return;
	}
	psn = get24(bth + 9);
	i = (psn - flow->psn) & 0xffffff;
	fill_payload(payload, flow->payload_bytes, i);
	ret->wrong += memcmp(payload, bth + headers, flow->payload_bytes) != 0;
	ret->out_of_order += psn != *next_psn;
	*next_psn = (psn + 1) & 0xffffff;
	for (size_t at = 0; at + 4 <= bytes; at += 4)
		ret->digest = (ret->digest ^ get32(bth + at)) * 0x100000001b3ull;
}

int generator_receive(int fd, const struct generator_flow *flow, int idle_ms,
		      struct generator_result *ret)
{
	struct outbox *box = calloc(1, sizeof(*box) + MESSAGES * PACKET_MAX);
	uint32_t next_psn = (uint32_t)(flow->psn + flow->first) & 0xffffff;
	int n, err = 0;

	if (!box)
		return -ENOMEM;
	memset(ret, 0, sizeof(*ret));
	for (int i = 0; i < MESSAGES; i++) {
		box->parts[i] = (struct iovec){box->bytes + i * PACKET_MAX, PACKET_MAX};
		box->messages[i].msg_hdr.msg_iov = &box->parts[i];
		box->messages[i].msg_hdr.msg_iovlen = 1;
	}
	while (!err && ret->packets < flow->count) {
		n = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, idle_ms);
		if (n == 0)
			break;
		n = n < 0 ? n : recvmmsg(fd, box->messages, MESSAGES, MSG_DONTWAIT, NULL);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			err = -errno;
		for (int i = 0; i < n; i++)
			check(flow, box->parts[i].iov_base, box->messages[i].msg_len, &next_psn,
			      ret);
	}
	free(box);
	return err;
}
