#include "cq.h"

#include <errno.h>
#include <stdlib.h>

struct ldma_cq *ldma_cq_create(uint32_t capacity)
{
	struct ldma_cq *cq = calloc(1, sizeof(*cq));
	uint32_t size = 1;

	while (size < capacity && size < 1u << 30)
		size *= 2;
	if (!cq)
		return NULL;
	cq->mask = size - 1;
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
	free(cq->ring);
	free(cq);
	return 0;
}

void ldma_cq_push(struct ldma_cq *cq, const struct ldma_wc *wc)
{
	bool is_urgent = wc->is_solicited || wc->status != LDMA_WC_SUCCESS;

	if (cq->tail - cq->head > cq->mask) {
		cq->lost++;
	} else {
		cq->ring[cq->tail & cq->mask] = *wc;
		cq->tail++;
	}
	if (cq->armed == LDMA_CQ_ARMED_ANY || (cq->armed == LDMA_CQ_ARMED_SOLICITED && is_urgent)) {
		cq->armed = LDMA_CQ_NOT_ARMED;
		cq->event_pending = true;
	}
}

uint32_t ldma_cq_poll(struct ldma_cq *cq, struct ldma_wc *ret, uint32_t count)
{
	uint32_t n = 0;

	while (n < count && cq->head != cq->tail)
		ret[n++] = cq->ring[cq->head++ & cq->mask];
	return n;
}

void ldma_cq_arm(struct ldma_cq *cq, enum ldma_cq_arm what)
{
	/* Arming for any completion includes the solicited ones; the wider wish stays. */
	if (what > cq->armed)
		cq->armed = (uint8_t)what;
}

bool ldma_cq_take_event(struct ldma_cq *cq)
{
	bool event = cq->event_pending;

	cq->event_pending = false;
	return event;
}
