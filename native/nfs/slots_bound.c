/* SPDX-License-Identifier: BSD-2-Clause */
/* The connections that a session is bound to (RFC 8881 2.10.3.1). */
#include "nfs/slots.h"

#include <stddef.h>

static uint64_t *look_for_connection(struct ldma_slots *slots, uint64_t connection)
{
	for (uint32_t i = 0; i < LDMA_SLOTS_CONNECTIONS; i++)
		if (slots->bound[i] == connection)
			return &slots->bound[i];
	return NULL;
}

void ldma_slots_bind(struct ldma_slots *slots, uint64_t connection)
{
	uint64_t *place;

	ldma_lock(&slots->lock);
	if (!look_for_connection(slots, connection)) {
		place = look_for_connection(slots, 0);
		if (!place)
			place = &slots->bound[slots->bound_next++ % LDMA_SLOTS_CONNECTIONS];
		*place = connection;
	}
	ldma_unlock(&slots->lock);
}

void ldma_slots_unbind(struct ldma_slots *slots, uint64_t connection)
{
	uint64_t *place;

	ldma_lock(&slots->lock);
	place = look_for_connection(slots, connection);
	if (place)
		*place = 0;
	ldma_unlock(&slots->lock);
}

bool ldma_slots_is_bound(struct ldma_slots *slots, uint64_t connection)
{
	bool is_bound;

	ldma_lock(&slots->lock);
	is_bound = connection && look_for_connection(slots, connection);
	ldma_unlock(&slots->lock);
	return is_bound;
}
