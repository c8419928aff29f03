/* Sessions by their id. Any thread may use it. */
#ifndef LDMA_SESSIONS_H
#define LDMA_SESSIONS_H

#include "slots.h"

#define LDMA_SESSIONS_BUCKETS 4096

struct ldma_sessions {
	struct ldma_lock lock;
	uint32_t count;
	struct ldma_slots *buckets[LDMA_SESSIONS_BUCKETS];
};

/* 0, with a reference of the table's own; -EEXIST: there is one of that id. */
int ldma_sessions_add(struct ldma_sessions *sessions, struct ldma_slots *slots);

/* Whether it was there. Requests that have begun go on. */
bool ldma_sessions_remove(struct ldma_sessions *sessions, struct ldma_slots *slots);

/* NULL, or a session with a reference that the caller puts. */
struct ldma_slots *ldma_sessions_find(struct ldma_sessions *sessions, const uint8_t *session_id);

/* Removes all. */
void ldma_sessions_clear(struct ldma_sessions *sessions);

#endif
