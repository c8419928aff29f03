/* SPDX-License-Identifier: BSD-2-Clause */
/* The device is a RoCEv2 HCA in software: queue pairs and regions behind one address. Packets and the time go in;
 * packets, completions and the time of the next timer come out. It has no socket, no thread and no clock, and allocates
 * only when something is created.
 *
 * One thread at a time may call a device and what belongs to it. The caller (native/port, or a test) hands received
 * packets to ldma_device_receive and sends what ldma_device_transmit writes until that returns 0. */
#ifndef LDMA_DEVICE_H
#define LDMA_DEVICE_H

#include "device/qp.h"

struct ldma_device_config {
	uint32_t max_qp, max_region;
	uint32_t window_packets; /* the most PSNs of one queue pair in flight; 0: 256 */
	uint32_t read_packets;   /* the most responses that one READ request asks for, rounded up to
				  * a power of two: longer READs are several requests; 0: 32 */
	uint32_t burst_packets;  /* of one queue pair in a row, while others wait; 0: 16 */
	/* The range of queue pair numbers, for a device that shares its address with others; 0: all there are. next_qp
	 * is the first number to use, so that late packets for an earlier device with this range find no queue pair;
	 * 0: the first of the range. */
	uint32_t first_qp, last_qp, next_qp;
	uint64_t iova_space; /* bytes of addresses for windows; 0: 256 TiB */
};

struct ldma_device {
	struct ldma_device_config config;
	struct ldma_iova iova;
	struct ldma_timers timers;
	struct ldma_counters counters;
	struct ldma_events events;
	struct ldma_qp **qps; /* by number & qp_mask */
	struct ldma_qp *gsi;  /* or NULL; not in the table: it would block another's place */
	uint32_t qp_mask, qp_count, next_qp;
	struct ldma_qp *ready, *ready_last;
	struct ldma_qp *lazy; /* queue pairs with an ACK that can wait */
	bool is_ack_awaited;  /* but not for long: a peer waits for one of these ACKs */
	uint32_t burst_left;
	uint16_t ip_id; /* of the next packet: set by a port whose packets do not have 0 */
};

/* Returns a new device, which the caller destroys, or NULL without memory. */
struct ldma_device *ldma_device_create(const struct ldma_device_config *config);

/* Destroys the device with its queue pairs and regions. Protection domains, completion queues and shared receive queues
 * belong to the caller. NULL is accepted. */
void ldma_device_destroy(struct ldma_device *device);

/* Creates a queue pair in RESET; the device owns it. Returns 0, -EINVAL, -ENOMEM or -EBUSY (too many queue pairs, or a
 * second GSI). A number is used again only after many others, so that late packets find no queue pair. */
int ldma_device_create_qp(struct ldma_device *device, const struct ldma_qp_init *init,
			  struct ldma_qp **ret);
void ldma_device_destroy_qp(struct ldma_qp *qp);

/* Returns the queue pair, or NULL if there is none with this number. */
struct ldma_qp *ldma_device_find_qp(const struct ldma_device *device, uint32_t number);

/* Takes one packet. The caller may reuse its memory afterwards. A packet whose ICRC is not LDMA_ICRC_OK is dropped. */
void ldma_device_receive(struct ldma_device *device, const struct ldma_packet *packet,
			 uint64_t now_ns);

/* Writes the next packet, from its IP header to its ICRC, to buf of LDMA_PACKET_MAX bytes. Returns its length, or 0 if
 * nothing is to be sent now. Queue pairs take turns. Timers that are due run first. ret_qp, which may be NULL, takes
 * the queue pair that sends the packet. */
size_t ldma_device_transmit(struct ldma_device *device, uint8_t *buf, uint64_t now_ns,
			    struct ldma_qp **ret_qp);

/* Lets the queue pairs send the ACKs that wait. The ACK at the end of a message waits for this call or for more to
 * acknowledge, since the answer to the message is more urgent. The caller calls this when it has nothing else to do.
 * Returns whether any ACK waited. */
bool ldma_device_flush_acks(struct ldma_device *device);

/* Returns when to call ldma_device_transmit even if nothing else happens, or LDMA_NEVER. */
uint64_t ldma_device_next_timer(struct ldma_device *device);

/* Takes the oldest event. Returns false if there is none. Destroying a queue pair drops its events; before the caller
 * destroys a completion queue or a shared receive queue, it calls ldma_device_forget_events. */
static inline bool ldma_device_poll_event(struct ldma_device *device, struct ldma_event *ret)
{
	return ldma_events_poll(&device->events, ret);
}

static inline void ldma_device_forget_events(struct ldma_device *device, const void *object)
{
	ldma_events_forget(&device->events, object);
}

/* Gives the queue pair a turn in ldma_device_transmit: it may have something to send. */
void ldma_device_schedule(struct ldma_qp *qp);

#endif
