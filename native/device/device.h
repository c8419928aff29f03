/* The device: queue pairs and regions behind one address, packets and time in, packets, completions and the next timer
 * out. It has no socket, no thread and no clock, and allocates only when something is created. */
#ifndef LDMA_DEVICE_H
#define LDMA_DEVICE_H

#include "qp.h"

struct ldma_device_config {
	uint32_t max_qp, max_region;
	uint32_t window_packets; /* PSNs of one queue pair in flight at most; 0: 256 */
	uint32_t read_packets;  /* responses that one READ request asks for at most, rounded up to a
				  * power of two: longer READs are several; 0: 32 */
	uint32_t burst_packets; /* of one queue pair in a row, while others wait; 0: 16 */
	/* Numbers of queue pairs, for who shares an address with others; 0: all there are. next_qp: which to begin with,
	 * so that late packets for who had the numbers before find nobody; 0: the first. */
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
	struct ldma_qp *gsi;  /* or NULL; its number would be in the way of others in the table */
	uint32_t qp_mask, qp_count, next_qp;
	struct ldma_qp *ready, *ready_last;
	struct ldma_qp *lazy; /* have an ACK that can wait, */
	bool is_ack_awaited;  /* but not long: a peer waits for one of them */
	uint32_t burst_left;
	uint16_t ip_id; /* of the next packet: set by a port whose packets do not have 0 */
};

/* Returns NULL without memory. */
struct ldma_device *ldma_device_create(const struct ldma_device_config *config);

/* Also destroys its queue pairs and regions; protection domains, completion queues and shared receive queues are
 * the caller's. */
void ldma_device_destroy(struct ldma_device *device);

/* 0 and the queue pair, in RESET; -EINVAL, -ENOMEM or (too many; a second GSI) -EBUSY.
 * A number is not used again before many others were, so that late packets find nobody. */
int ldma_device_create_qp(struct ldma_device *device, const struct ldma_qp_init *init,
			  struct ldma_qp **ret);
void ldma_device_destroy_qp(struct ldma_qp *qp);

/* NULL if there is no such queue pair. */
struct ldma_qp *ldma_device_find_qp(const struct ldma_device *device, uint32_t number);

/* Takes one packet. Nothing of it is needed afterwards. A packet with an ICRC that is not LDMA_ICRC_OK is dropped. */
void ldma_device_receive(struct ldma_device *device, const struct ldma_packet *packet,
			 uint64_t now_ns);

/* Writes the next packet, from its IP header to its ICRC, to buf of LDMA_PACKET_MAX bytes, and returns its length; 0
 * if nothing is to be sent now. Queue pairs take turns. Timers that are due run first. ret_qp may be NULL. */
size_t ldma_device_transmit(struct ldma_device *device, uint8_t *buf, uint64_t now_ns,
			    struct ldma_qp **ret_qp);

/* The ACK at the end of a message waits for this, or for more to acknowledge: who answers the message has more urgent
 * things to send. Call it when nothing else is to be done. Returns whether there was any. */
bool ldma_device_flush_acks(struct ldma_device *device);

/* When to call ldma_device_transmit even if nothing else happens, or LDMA_NEVER. */
uint64_t ldma_device_next_timer(struct ldma_device *device);

/* Takes the oldest event; false if there is none. Those of a queue pair go with it; who destroys a completion queue or a
 * shared receive queue calls ldma_device_forget_events before. */
static inline bool ldma_device_poll_event(struct ldma_device *device, struct ldma_event *ret)
{
	return ldma_events_poll(&device->events, ret);
}

static inline void ldma_device_forget_events(struct ldma_device *device, const void *object)
{
	ldma_events_forget(&device->events, object);
}

/* The queue pair may have something to send. */
void ldma_device_schedule(struct ldma_qp *qp);

#endif
