/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames and trains of any shape to a packet port, which reads headers that no kernel has checked for it. */
#undef NDEBUG
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "port/port.h"

#define ADDRESS "127.0.0.6"
#define LOOPBACK 1 /* lo's index */
#define FRAMES 20000
#define PAYLOAD_MAX 4096
#define SKIPPED 77 /* meson's word for it */
#define GSO_UDP_L4 5

static int open_port(struct ldma_port **ret)
{
	struct ldma_port_config config = {
		.device = {.max_qp = 16, .max_region = 16},
		.address.ip_version = 4,
		.interface = LOOPBACK,
		.kind = LDMA_PORT_PACKET,
		.spin_us = 20,
	};

	inet_pton(AF_INET, ADDRESS, config.address.bytes);
	return ldma_port_open(&config, ret);
}

static int open_sender(void)
{
	struct sockaddr_ll where = {
		.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_IP), .sll_ifindex = LOOPBACK};
	int fd = socket(AF_PACKET, SOCK_RAW, 0), one = 1;

	assert(fd >= 0);
	assert(!bind(fd, (struct sockaddr *)&where, sizeof(where)));
	assert(!setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)));
	return fd;
}

/* Mostly as it should be, up to the UDP header: what is behind that is anything. */
static size_t build(uint8_t *buf)
{
	struct virtio_net_hdr offload = {0};
	uint8_t *l3 = buf + sizeof(offload) + ETH_HLEN;
	uint32_t header = rand() % 4 ? 20 : (uint32_t)(rand() % 16) * 4;
	uint32_t payload = (uint32_t)rand() % (rand() % 2 ? 64 : PAYLOAD_MAX);
	uint32_t used = header + 8 + payload;

	memset(buf, 0, sizeof(offload) + ETH_HLEN + 68);
	for (uint32_t i = 0; i < payload; i++)
		l3[header + 8 + i] = (uint8_t)rand();
	put16(l3 + header + 2, LDMA_ROCE2_PORT);
	put16(l3 + header + 4, (uint16_t)(rand() % 8 ? 8 + payload : (uint32_t)rand()));
	l3[0] = (uint8_t)((rand() % 16 ? 0x40 : 0x60) | header / 4);
	put16(l3 + 2, (uint16_t)(rand() % 8 ? used : (uint32_t)rand()));
	put16(l3 + 4, (uint16_t)rand());
	put16(l3 + 6, rand() % 8 ? 0x4000 : 0x2000); /* sometimes there are more fragments */
	l3[8] = 64;
	l3[9] = IPPROTO_UDP;
	inet_pton(AF_INET, "127.0.0.7", l3 + 12);
	inet_pton(AF_INET, ADDRESS, l3 + 16);
	put16(buf + sizeof(offload) + 12, ETH_P_IP);
	if (rand() % 2) {
		offload = (struct virtio_net_hdr){
			.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
			.gso_type = GSO_UDP_L4,
			.hdr_len = (uint16_t)(ETH_HLEN + header + 8),
			.gso_size = (uint16_t)(1 + rand() % 600),
			.csum_start = (uint16_t)(ETH_HLEN + header),
			.csum_offset = 6,
		};
	}
	memcpy(buf, &offload, sizeof(offload));
	return sizeof(offload) + ETH_HLEN + used;
}

int main(void)
{
	static uint8_t buf[128 + PAYLOAD_MAX];
	struct ldma_port_counters counters;
	struct ldma_port *port;
	uint32_t sent = 0, trains = 0;
	struct ldma_counters device;
	uint64_t packets;
	int error = open_port(&port), fd;

	if (error == -EPERM || error == -EOPNOTSUPP) {
		fprintf(stderr, "no packet port: %s\n", strerror(-error));
		return SKIPPED;
	}
	assert(!error);
	fd = open_sender();
	srand(1);
	for (int i = 0; i < FRAMES; i++) {
		size_t length = build(buf);

		if (send(fd, buf, length, 0) < 0)
			continue; /* the kernel has its own ideas of what can be segmented */
		sent++;
		trains += buf[1] == GSO_UDP_L4;
	}
	printf("%u frames, %u of them trains\n", sent, trains);
	assert(sent > FRAMES / 4 && trains > FRAMES / 20);
	for (int tries = 0; tries < 1000; tries++) {
		counters = ldma_port_counters(port);
		if (counters.received_trains + counters.overruns >= sent / 2)
			break;
		usleep(10000);
	}
	assert(counters.received_trains + counters.overruns >= sent / 2);
	device = ldma_port_lock(port)->counters;
	ldma_port_unlock(port);
	packets = counters.foreign + device.dropped_icrc + device.dropped_malformed;
	printf("%llu came: %llu packets\n", (unsigned long long)counters.received_trains,
	       (unsigned long long)packets);
	assert(packets > counters.received_trains);
	close(fd);
	ldma_port_close(port);
	return 0;
}
