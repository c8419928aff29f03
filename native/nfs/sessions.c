/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/sessions.h"

#include <errno.h>
#include <string.h>

#include "base/hash.h"

static struct ldma_slots **bucket_of(struct ldma_sessions *sessions, const uint8_t *session_id)
{
	return &sessions->buckets[ldma_hash(session_id, LDMA_SESSION_ID_BYTES) %
				  LDMA_SESSIONS_BUCKETS];
}

static struct ldma_slots *look(struct ldma_sessions *sessions, const uint8_t *session_id)
{
	struct ldma_slots *slots = *bucket_of(sessions, session_id);

	while (slots && memcmp(slots->session_id, session_id, LDMA_SESSION_ID_BYTES))
		slots = slots->next_session;
	return slots;
}

int ldma_sessions_add(struct ldma_sessions *sessions, struct ldma_slots *slots)
{
	struct ldma_slots **bucket = bucket_of(sessions, slots->session_id);
	int result = -EEXIST;

	ldma_lock(&sessions->lock);
	if (!look(sessions, slots->session_id)) {
		ldma_slots_get(slots);
		slots->next_session = *bucket;
		*bucket = slots;
		sessions->count++;
		result = 0;
	}
	ldma_unlock(&sessions->lock);
	return result;
}

bool ldma_sessions_remove(struct ldma_sessions *sessions, struct ldma_slots *slots)
{
	struct ldma_slots **link = bucket_of(sessions, slots->session_id);
	bool is_found;

	ldma_lock(&sessions->lock);
	while (*link && *link != slots)
		link = &(*link)->next_session;
	is_found = *link != NULL;
	if (is_found) {
		*link = slots->next_session;
		sessions->count--;
	}
	ldma_unlock(&sessions->lock);
	if (is_found)
		ldma_slots_put(slots);
	return is_found;
}

/* The connections that a session is bound to (RFC 8881 2.10.3.1). */

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

struct ldma_slots *ldma_sessions_find(struct ldma_sessions *sessions, const uint8_t *session_id,
				      uint64_t connection)
{
	struct ldma_slots *slots;

	ldma_lock(&sessions->lock);
	slots = look(sessions, session_id);
	if (slots)
		ldma_slots_get(slots);
	ldma_unlock(&sessions->lock);
	if (slots && !ldma_slots_is_bound(slots, connection)) {
		ldma_slots_put(slots);
		return NULL;
	}
	return slots;
}

void ldma_sessions_clear(struct ldma_sessions *sessions)
{
	for (uint32_t i = 0; i < LDMA_SESSIONS_BUCKETS; i++)
		while (sessions->buckets[i])
			ldma_sessions_remove(sessions, sessions->buckets[i]);
}
