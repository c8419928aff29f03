/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/completer.h"
#include "device/requester.h"
#include "device/responder.h"

#define FIRST_QP 16                 /* the numbers below have meanings of their own */
#define LAST_QP (LDMA_PSN_MASK - 1) /* all ones means multicast */
#define EVENTS_MIN 64
#define ECN_CE 3 /* RFC 3168 */

static void set_config(struct ldma_device_config *config, const struct ldma_device_config *wanted)
{
	uint32_t read_packets = 1;

	*config = *wanted;
	if (!config->window_packets)
		config->window_packets = 256;
	if (config->window_packets > LDMA_PSN_HALF) /* IBA 9.7.2 */
		config->window_packets = LDMA_PSN_HALF;
	if (!config->read_packets)
		config->read_packets = 32;
	while (read_packets < config->read_packets && read_packets < LDMA_PSN_HALF)
		read_packets *= 2;
	config->read_packets = read_packets;
	if (!config->burst_packets)
		config->burst_packets = 16;
	if (!config->iova_space || config->iova_space > LDMA_IOVA_FIRST)
		config->iova_space = LDMA_IOVA_FIRST;
	if (config->first_qp < FIRST_QP)
		config->first_qp = FIRST_QP;
	if (!config->last_qp || config->last_qp > LAST_QP)
		config->last_qp = LAST_QP;
	if (config->next_qp < config->first_qp || config->next_qp > config->last_qp)
		config->next_qp = config->first_qp;
}

struct ldma_device *ldma_device_create(const struct ldma_device_config *config)
{
	struct ldma_device *device = calloc(1, sizeof(*device));
	uint32_t size = 1;

	if (!device)
		return NULL;
	while (size < config->max_qp && size < 1u << 20)
		size *= 2;
	set_config(&device->config, config);
	device->qp_mask = size - 1;
	device->next_qp = device->config.next_qp;
	device->qps = calloc(size, sizeof(struct ldma_qp *));
	if (!device->qps ||
	    ldma_iova_init(&device->iova, config->max_region, device->config.iova_space) ||
	    ldma_timers_init(&device->timers, 2 * (size + 1)) ||
	    ldma_events_init(&device->events, EVENTS_MIN + 2 * size)) {
		ldma_device_destroy(device);
		return NULL;
	}
	return device;
}

void ldma_device_destroy(struct ldma_device *device)
{
	if (!device)
		return;
	for (uint32_t i = 0; device->qps && i <= device->qp_mask; i++)
		if (device->qps[i])
			ldma_device_destroy_qp(device->qps[i]);
	if (device->gsi)
		ldma_device_destroy_qp(device->gsi);
	free(device->qps);
	ldma_timers_destroy(&device->timers);
	ldma_iova_destroy(&device->iova);
	ldma_events_destroy(&device->events);
	free(device);
}

static struct ldma_qp **place_of(struct ldma_device *device, uint32_t number)
{
	return number == LDMA_GSI_QP ? &device->gsi : &device->qps[number & device->qp_mask];
}

/* Returns a free number, or 0. */
static uint32_t choose_number(struct ldma_device *device, uint8_t type)
{
	if (type == LDMA_QP_GSI)
		return device->gsi ? 0 : LDMA_GSI_QP;
	for (uint32_t tries = 0; tries <= device->qp_mask; tries++) {
		uint32_t number = device->next_qp++;

		if (device->next_qp > device->config.last_qp)
			device->next_qp = device->config.first_qp;
		if (!device->qps[number & device->qp_mask])
			return number;
	}
	return 0;
}

int ldma_device_create_qp(struct ldma_device *device, const struct ldma_qp_init *init,
			  struct ldma_qp **ret)
{
	uint32_t number = choose_number(device, init->type);
	struct ldma_qp *qp;
	int error;

	if (!number)
		return -EBUSY;
	qp = malloc(sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	error = ldma_qp_init(qp, device, number, init);
	if (error) {
		free(qp);
		return error;
	}
	*place_of(device, number) = qp;
	device->qp_count++;
	*ret = qp;
	return 0;
}

static void unschedule(struct ldma_qp *qp)
{
	struct ldma_device *device = qp->device;
	struct ldma_qp *before = NULL;

	if (!qp->is_ready)
		return;
	for (struct ldma_qp *at = device->ready; at != qp; at = at->next_ready)
		before = at;
	if (before)
		before->next_ready = qp->next_ready;
	else
		device->ready = qp->next_ready;
	if (device->ready_last == qp)
		device->ready_last = before;
	qp->is_ready = false;
}

void ldma_device_schedule(struct ldma_qp *qp)
{
	struct ldma_device *device = qp->device;

	if (qp->is_ready)
		return;
	qp->is_ready = true;
	qp->next_ready = NULL;
	if (device->ready) {
		device->ready_last->next_ready = qp;
	} else {
		device->ready = qp;
		device->burst_left = device->config.burst_packets;
	}
	device->ready_last = qp;
}

/* Lets the queue pair's ACK wait for ldma_device_flush_acks. */
static void defer(struct ldma_qp *qp)
{
	if (qp->is_lazy)
		return;
	qp->is_lazy = true;
	qp->next_lazy = qp->device->lazy;
	qp->device->lazy = qp;
}

static void forget_deferred(struct ldma_qp *qp)
{
	struct ldma_qp **link = &qp->device->lazy;

	if (!qp->is_lazy)
		return;
	while (*link != qp)
		link = &(*link)->next_lazy;
	*link = qp->next_lazy;
}

bool ldma_device_flush_acks(struct ldma_device *device)
{
	bool is_any = device->lazy;

	device->is_ack_awaited = false;
	for (struct ldma_qp *qp; (qp = device->lazy);) {
		device->lazy = qp->next_lazy;
		qp->is_lazy = qp->resp.is_ack_lazy = false;
		ldma_device_schedule(qp);
	}
	return is_any;
}

void ldma_device_destroy_qp(struct ldma_qp *qp)
{
	struct ldma_device *device = qp->device;

	unschedule(qp);
	forget_deferred(qp);
	ldma_timer_remove(&device->timers, &qp->timer);
	ldma_timer_remove(&device->timers, &qp->page_timer);
	ldma_events_forget(&device->events, qp);
	*place_of(device, qp->number) = NULL;
	device->qp_count--;
	ldma_qp_destroy(qp);
	free(qp);
}

struct ldma_qp *ldma_device_find_qp(const struct ldma_device *device, uint32_t number)
{
	struct ldma_qp *qp = device->qps[number & device->qp_mask];

	if (qp && qp->number == number)
		return qp;
	return number == LDMA_GSI_QP ? device->gsi : NULL;
}

/* IBA 9.6.1: the packet has the queue pair's transport, comes from its peer and is for its partition. */
static bool is_from_peer(const struct ldma_qp *qp, const struct ldma_packet *packet,
			 const struct ldma_opcode_info *info)
{
	static const uint8_t transports[] = {
		[LDMA_QP_GSI] = LDMA_TRANSPORT_UD,
		[LDMA_QP_RC] = LDMA_TRANSPORT_RC,
		[LDMA_QP_UC] = LDMA_TRANSPORT_UC,
		[LDMA_QP_UD] = LDMA_TRANSPORT_UD,
	};
	const struct ldma_path *path = &qp->attr.path;

	bool is_cnp = info->operation == LDMA_OP_CNP && !ldma_qp_is_datagram(qp);

	if ((info->transport != transports[qp->type] && !is_cnp) || packet->version != 2)
		return false;
	if ((packet->pkey ^ qp->attr.pkey) & 0x7fff) /* must be equal, one being a full member */
		return false;
	if (!((packet->pkey | qp->attr.pkey) & 0x8000))
		return false;
	if (ldma_qp_is_datagram(qp))
		return packet->qkey == qp->attr.qkey;
	return packet->ip_version == path->ip_version && !memcmp(packet->src, path->dst, 16) &&
	       !memcmp(packet->dst, path->src, 16);
}

void ldma_device_receive(struct ldma_device *device, const struct ldma_packet *packet,
			 uint64_t now_ns)
{
	const struct ldma_opcode_info *info = &ldma_opcodes[packet->opcode];
	struct ldma_qp *qp;

	if (packet->icrc_state != LDMA_ICRC_OK) {
		device->counters.dropped_icrc++;
		return;
	}
	/* The responder refuses a WRITE whose lengths contradict each other. */
	if ((packet->error && packet->error != LDMA_PACKET_WRITE_LENGTH) ||
	    !(packet->seen & LDMA_SEEN_PAYLOAD)) {
		device->counters.dropped_malformed++;
		return;
	}
	qp = ldma_device_find_qp(device, packet->dest_qp);
	if (!qp || qp->state < LDMA_QP_RTR || qp->state == LDMA_QP_ERR) {
		device->counters.dropped_no_qp++;
		return;
	}
	if (!is_from_peer(qp, packet, info)) {
		LDMA_COUNT(qp, dropped_not_peer);
		return;
	}
	LDMA_COUNT(qp, rcvd_pkts);
	LDMA_COUNT_BY(qp, rcvd_bytes, packet->payload_length);
	if (qp->state == LDMA_QP_RTR && !qp->resp.is_established && !ldma_qp_is_datagram(qp)) {
		qp->resp.is_established = true; /* IBA 11.6.3.2 */
		ldma_qp_raise(qp, LDMA_EVENT_COMM_EST, qp);
	}
	if (info->operation == LDMA_OP_CNP) {
		ldma_cnp_receive(qp);
		return;
	}
	if ((packet->tos & ECN_CE) == ECN_CE && !ldma_qp_is_datagram(qp))
		ldma_cnp_mark(qp, packet, now_ns);
	if (info->role & LDMA_ROLE_RESPONSE)
		ldma_completer_receive(qp, packet, now_ns);
	else
		ldma_responder_receive(qp, packet);
	if (qp->resp.is_ack_lazy)
		defer(qp);
	if (!qp->resp.is_ack_lazy || qp->resp.pending || (info->role & LDMA_ROLE_RESPONSE))
		ldma_device_schedule(qp);
}

/* Writes one packet of the queue pair. Responses and requests alternate: neither direction may starve the other. */
static size_t transmit(struct ldma_qp *qp, uint8_t *buf, uint64_t now_ns)
{
	size_t length = 0;

	if (qp->has_overrun)
		ldma_qp_end_overrun(qp);
	if (qp->cnp.is_pending && qp->state != LDMA_QP_ERR)
		return ldma_cnp_transmit(qp, buf);
	for (int tries = 0; tries < 2 && !length; tries++) {
		if (qp->prefers_requests)
			length = ldma_requester_transmit(qp, buf, now_ns);
		else
			length = ldma_responder_transmit(qp, buf, now_ns);
		qp->prefers_requests = !qp->prefers_requests;
	}
	return length;
}

size_t ldma_device_transmit(struct ldma_device *device, uint8_t *buf, uint64_t now_ns,
			    struct ldma_qp **ret_qp)
{
	struct ldma_timer *timer;

	while ((timer = ldma_timers_pop(&device->timers, now_ns)))
		timer->expire(timer);
	while (device->ready) {
		struct ldma_qp *qp = device->ready;
		size_t length = transmit(qp, buf, now_ns);

		if (length && --device->burst_left) {
			/* it keeps its turn */
		} else {
			unschedule(qp);
			device->burst_left = device->config.burst_packets;
			if (length)
				ldma_device_schedule(qp);
		}
		if (length) {
			LDMA_COUNT(qp, sent_pkts);
			if (ret_qp)
				*ret_qp = qp;
			return length;
		}
	}
	return 0;
}

uint64_t ldma_device_next_timer(struct ldma_device *device)
{
	return ldma_timers_next(&device->timers);
}
