/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cq.h"

#include <errno.h>
#include <stdlib.h>

struct ldma_cq *ldma_cq_create(uint32_t capacity, struct ldma_cq_channel *channel)
{
	struct ldma_cq *cq = calloc(1, sizeof(*cq));
	uint32_t size = 1;

	while (size < capacity && size < 1u << 30)
		size *= 2;
	if (!cq)
		return NULL;
	cq->mask = size - 1;
	cq->channel = channel;
	cq->ring = calloc(size, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return NULL;
	}
	return cq;
}

int ldma_cq_destroy(struct ldma_cq *cq)
{
	if (!cq)
		return 0;
	if (cq->users)
		return -EBUSY;
	ldma_cq_take_event(cq);
	free(cq->ring);
	free(cq);
	return 0;
}

static void raise_event(struct ldma_cq *cq)
{
	struct ldma_cq_channel *channel = cq->channel;

	cq->armed = LDMA_CQ_NOT_ARMED;
	__atomic_store_n(&cq->events, cq->events + 1, __ATOMIC_SEQ_CST);
	if (channel && !cq->is_raised) {
		cq->is_raised = true;
		cq->next_raised = channel->raised;
		channel->raised = cq;
	}
	if (cq->event_pending)
		return;
	cq->event_pending = true;
	cq->next_event = NULL;
	if (!channel)
		return;
	if (channel->first)
		channel->last->next_event = cq;
	else
		channel->first = cq;
	channel->last = cq;
}

void ldma_cq_push(struct ldma_cq *cq, const struct ldma_wc *wc)
{
	bool is_urgent = wc->is_solicited || wc->status != LDMA_WC_SUCCESS;

	if (cq->tail - __atomic_load_n(&cq->head, __ATOMIC_ACQUIRE) > cq->mask) {
		cq->lost++;
	} else {
		cq->ring[cq->tail & cq->mask] = *wc;
		__atomic_store_n(&cq->tail, cq->tail + 1, __ATOMIC_RELEASE);
	}
	if (cq->armed == LDMA_CQ_ARMED_ANY || (cq->armed == LDMA_CQ_ARMED_SOLICITED && is_urgent))
		raise_event(cq);
}

uint32_t ldma_cq_poll(struct ldma_cq *cq, struct ldma_wc *ret, uint32_t count)
{
	uint32_t tail = __atomic_load_n(&cq->tail, __ATOMIC_ACQUIRE), n = 0;

	while (n < count && cq->head + n != tail) {
		ret[n] = cq->ring[(cq->head + n) & cq->mask];
		n++;
	}
	__atomic_store_n(&cq->head, cq->head + n, __ATOMIC_RELEASE);
	return n;
}

void ldma_cq_arm(struct ldma_cq *cq, enum ldma_cq_arm what)
{
	/* Arming for any completion includes solicited ones: the queue stays armed for the wider kind. */
	if (what > cq->armed)
		cq->armed = (uint8_t)what;
}

bool ldma_cq_take_event(struct ldma_cq *cq)
{
	struct ldma_cq_channel *channel = cq->channel;
	struct ldma_cq *before = NULL;

	if (!cq->event_pending)
		return false;
	cq->event_pending = false;
	if (!channel)
		return true;
	for (struct ldma_cq *at = channel->first; at != cq; at = at->next_event)
		before = at;
	if (before)
		before->next_event = cq->next_event;
	else
		channel->first = cq->next_event;
	if (channel->last == cq)
		channel->last = before;
	return true;
}

struct ldma_cq *ldma_cq_channel_raised(struct ldma_cq_channel *channel)
{
	struct ldma_cq *cq = channel->raised;

	if (cq) {
		channel->raised = cq->next_raised;
		cq->is_raised = false;
	}
	return cq;
}

struct ldma_cq *ldma_cq_channel_next(struct ldma_cq_channel *channel)
{
	struct ldma_cq *cq = channel->first;

	if (cq)
		ldma_cq_take_event(cq);
	return cq;
}
