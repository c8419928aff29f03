/* SPDX-License-Identifier: BSD-2-Clause */
/* A device with a live connection, and a stranger on the same network who knows the protocol, has a connection of their
 * own and guesses all the rest. Every packet has a good ICRC. What was not offered to them must stay as it is, and the
 * live connection must not notice. */
#include "tests/port/ends.h"
#include "wire/icrc.h"

#define ROUNDS 150
#define ATTACKS 200 /* packets per round */
#define BYTES 5000
#define OFFERED 256
#define CANARY 0x5c
#define STRANGER "127.0.0.3"

static struct {
	uint8_t before[4096], offered[OFFERED], after[4096];
} theirs;
static uint8_t near[2 * BYTES], far[2 * BYTES];

static uint32_t any(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

/* One of the values that mean something, or any at all. */
static uint32_t guess(const uint32_t *values, uint32_t count)
{
	return any() % 4 ? values[any() % count] : any();
}

static size_t forge(const struct end *own, const struct end *victim, uint8_t *buf)
{
	const uint32_t qps[] = {own->qp->number, own->qp->number, victim->qp->number, LDMA_GSI_QP};
	const uint32_t keys[] = {own->key, own->key, victim->key, victim->key + 1};
	const uint32_t lengths[] = {0, 8, 64, OFFERED, OFFERED + 1, 1024, 1 << 20, UINT32_MAX};
	struct ldma_packet packet = {
		.version = 2,
		.ip_version = 4,
		.src = {127, 0, 0, 3},
		.dst = {127, 0, 0, 2},
		.ttl = 64,
		.sport = LDMA_ROCE2_PORT,
		.dport = LDMA_ROCE2_PORT,
		.opcode = (uint8_t)(any() % 4 ? any() % 0x20 : any()),
		.flags = (uint8_t)(any() % 8 ? 0x40 : any()),
		.pkey = (uint16_t)(any() % 16 ? 0xffff : any()),
		.dest_qp = guess(qps, 4) & LDMA_PSN_MASK,
		.psn = (own->qp->resp.epsn + (any() % 4 ? any() % 3 : any())) & LDMA_PSN_MASK,
		.ack_req = any() % 2,
		.va = any() % 4 ? any() % (2 * OFFERED) : (uint64_t)any() << 32 | any(),
		.rkey = guess(keys, 4),
		.inv_rkey = guess(keys, 4),
		.dma_length = guess(lengths, 8),
		.swap_add = any(),
		.syndrome = (uint8_t)any(),
		.msn = any() & LDMA_PSN_MASK,
		.qkey = any() % 2 ? LDMA_GSI_QKEY : any(),
	};
	static uint8_t payload[4096];
	uint32_t length = any() % 2 ? packet.dma_length : any() % 2 ? 1024 : any() % 4096;

	if (any() % 8 == 0) { /* as good as can be, but for the bounds */
		packet.opcode = 0x0a;
		packet.dest_qp = own->qp->number;
		packet.psn = own->qp->resp.epsn;
		packet.rkey = own->key;
		packet.va = any() % OFFERED;
		packet.dma_length = length = any() % OFFERED;
	}
	length = length > sizeof(payload) ? sizeof(payload) : length;
	memset(payload, (int)any(), sizeof(payload));
	return ldma_packet_encode(&packet, payload, length, buf, LDMA_PACKET_MAX);
}

/* Bits that no encoder would set, under an ICRC that is right. */
static void twist(uint8_t *packet, size_t length)
{
	uint32_t end = (uint32_t)length - LDMA_ICRC_BYTES;

	if (any() % 4 == 0)
		packet[28 + any() % 32 % (end - 28)] = (uint8_t)any();
	if (any() % 16 == 0)
		end = 28 + any() % (end - 28);
	packet[2] = (uint8_t)((end + 4) >> 8);
	packet[3] = (uint8_t)(end + 4);
	packet[24] = (uint8_t)((end - 16) >> 8);
	packet[25] = (uint8_t)(end - 16);
	if (end < 40)
		return;
	for (uint32_t i = 0, icrc = ldma_icrc(LDMA_L3_IPV4, packet, 28, end); i < 4; i++)
		packet[end + i] = (uint8_t)(icrc >> 8 * i);
}

static void attack(int fd, struct end *own, const struct end *victim)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(LDMA_ROCE2_PORT)};
	static uint8_t packet[LDMA_PACKET_MAX + 8];

	inet_pton(AF_INET, "127.0.0.2", &to.sin_addr);
	for (uint32_t i = 0; i < ATTACKS; i++) {
		size_t length;
		bool is_dead;

		ldma_port_lock(own->port);
		length = forge(own, victim, packet);
		ldma_port_unlock(own->port);
		if (!length)
			continue;
		twist(packet, length);
		sendto(fd, packet + 28, (size_t)(packet[2] << 8 | packet[3]) - 28, 0,
		       (struct sockaddr *)&to, sizeof(to));
		ldma_port_serve(own->port); /* so that the next guess is a good one */
		ldma_port_lock(own->port);
		is_dead = own->qp->state == LDMA_QP_ERR;
		ldma_port_unlock(own->port);
		if (is_dead)
			connect_end(own, STRANGER, 5);
	}
}

static int open_stranger(void)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(LDMA_ROCE2_PORT)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), discover = IP_PMTUDISC_DO;

	inet_pton(AF_INET, STRANGER, &from.sin_addr);
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
	assert(!bind(fd, (struct sockaddr *)&from, sizeof(from)));
	return fd;
}

/* The victims' own work: there and back. */
static void work(struct end *here, struct end *there, uint64_t id)
{
	memset(near, (int)id, BYTES);
	post_recv(there, id, BYTES, BYTES);
	post_send(here, LDMA_WR_RDMA_WRITE, id + 1, 0, BYTES, 0, there->key);
	post_send(here, LDMA_WR_RDMA_READ, id + 2, BYTES, BYTES, 0, there->key);
	post_send(here, LDMA_WR_SEND, id + 3, 0, BYTES, 0, 0);
	for (uint64_t i = 1; i <= 3; i++)
		complete(here, id + i, 0);
	complete(there, id, 0);
	assert(!memcmp(near, near + BYTES, BYTES));
	assert(!memcmp(near, far, BYTES) && !memcmp(near, far + BYTES, BYTES));
}

int main(void)
{
	struct ldma_port *ports[] = {open_port("127.0.0.1"), open_port("127.0.0.2")};
	struct end here, there, offered;
	struct ldma_counters counters;
	int fd = open_stranger();
	uint32_t hits = 0;

	memset(&theirs, CANARY, sizeof(theirs));
	open_end(&here, ports[0], near, sizeof(near), 1001);
	open_end(&there, ports[1], far, sizeof(far), 1002);
	open_end(&offered, ports[1], theirs.offered, OFFERED, 2001);
	connect_end(&here, "127.0.0.2", there.qp->number);
	connect_end(&there, "127.0.0.1", here.qp->number);
	connect_end(&offered, STRANGER, 5);
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		attack(fd, &offered, &there);
		work(&here, &there, 4 * round);
	}
	counters = ldma_port_lock(ports[1])->counters;
	ldma_port_unlock(ports[1]);
	for (size_t i = 0; i < sizeof(theirs.before); i++)
		assert(theirs.before[i] == CANARY && theirs.after[i] == CANARY);
	for (size_t i = 0; i < OFFERED; i++)
		hits += theirs.offered[i] != CANARY;
	/* They got through to what was offered, and were refused or ignored everywhere else. */
	assert(hits && counters.remote_access_err && counters.remote_invalid_req_err);
	assert(counters.dropped_not_peer && counters.dropped_malformed && counters.dropped_icrc);
	close_end(&here);
	close_end(&there);
	close_end(&offered);
	ldma_port_close(ports[0]);
	ldma_port_close(ports[1]);
	return 0;
}
