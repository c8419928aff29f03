/* SPDX-License-Identifier: BSD-2-Clause */
/* A train gathers packets of one size to one peer on their way out, so that one system call sends them. The port has
 * one, and uses it on the thread that owns the device: it builds each packet in the slot, adds it, and sends the train
 * when a packet does not fit. */
#ifndef LDMA_TRAIN_H
#define LDMA_TRAIN_H

#include "device/qp.h"
#include "port/socket.h"

struct ldma_train {
	uint32_t count, bytes;
	uint32_t sent; /* how many have gone, where they go one by one */
	uint16_t segment;
	uint8_t tos;
	bool is_closed; /* a short packet was the last */
	uint8_t owner;  /* the top 8 bits of the peers' numbers: one process of a shared address */
	struct ldma_address to;
	struct iovec iov[LDMA_TRAIN_SEGMENTS];
	uint8_t packets[LDMA_TRAIN_SEGMENTS][(LDMA_PACKET_MAX + 63) & ~63];
};

/* Returns where to build the next packet. There is room unless ldma_train_is_full. */
static inline uint8_t *ldma_train_slot(struct ldma_train *train)
{
	return train->packets[train->count];
}

static inline void ldma_train_clear(struct ldma_train *train)
{
	train->count = train->bytes = train->sent = 0;
	train->is_closed = false;
}

static inline bool ldma_train_is_full(const struct ldma_train *train)
{
	return train->is_closed || train->count == LDMA_TRAIN_SEGMENTS ||
	       train->bytes + train->segment > LDMA_TRAIN_BYTES;
}

/* Adds the packet in the slot, of length bytes from its IP header on. Returns false if it goes elsewhere or does not
 * fit: the caller then sends the train and calls ldma_train_restart. */
bool ldma_train_add(struct ldma_train *train, uint32_t length, uint32_t scope);

/* Forgets what was sent, and starts with the packet in the slot that did not fit. */
void ldma_train_restart(struct ldma_train *train, uint32_t length, uint32_t scope);

/* Gives packet i the IPv4 ID and the ICRC that goes with it. */
void ldma_train_set_id(struct ldma_train *train, uint32_t i, uint16_t id);

/* Returns packet i as a whole, from its IP header on. */
const uint8_t *ldma_train_packet(const struct ldma_train *train, uint32_t i, uint32_t *ret_length);

#endif
