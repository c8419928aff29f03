/* SPDX-License-Identifier: BSD-2-Clause */
/* A table of sessions by their id, whose slots are in slots.h. Any thread may use it. */
#ifndef LDMA_SESSIONS_H
#define LDMA_SESSIONS_H

#include "nfs/slots.h"

#define LDMA_SESSIONS_BUCKETS 4096

struct ldma_sessions {
	struct ldma_lock lock;
	uint32_t count;
	struct ldma_slots *buckets[LDMA_SESSIONS_BUCKETS];
};

/* Adds a session, of which the table takes a reference. Returns 0, or -EEXIST: there is one of that id. */
int ldma_sessions_add(struct ldma_sessions *sessions, struct ldma_slots *slots);

/* Removes a session; returns whether it was there. Requests that have begun go on. */
bool ldma_sessions_remove(struct ldma_sessions *sessions, struct ldma_slots *slots);

/* Returns a session that is bound to the connection, with a reference that the caller puts, or NULL. */
struct ldma_slots *ldma_sessions_find(struct ldma_sessions *sessions, const uint8_t *session_id,
				      uint64_t connection);

/* Removes all. */
void ldma_sessions_clear(struct ldma_sessions *sessions);

#endif
