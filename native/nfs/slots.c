/* SPDX-License-Identifier: BSD-2-Clause */
#include "nfs/slots.h"

#include <stdlib.h>
#include <string.h>

struct ldma_slot {
	uint32_t sequence;   /* of the last request that was executed */
	uint32_t generation; /* of the target that the last reply announced */
	bool is_used;        /* there is a last request */
	bool is_executing;   /* the request in asked executes */
	bool has_returned; /* it was removed and came back: sequence 1 is as valid as the next one */
	uint32_t length, capacity;
	uint8_t *reply;  /* of the last request; NULL: not kept */
	uint8_t *buffer; /* filled by the thread that executes the request */
	uint64_t fingerprint;
	struct ldma_sequence asked;
	uint32_t asked_generation;
	uint64_t begun_ns;
};

static struct ldma_slot *slot_at(struct ldma_slots *slots, uint32_t slot)
{
	struct ldma_slot *chunk = slots->chunks[slot / LDMA_SLOTS_CHUNK];

	return chunk ? &chunk[slot % LDMA_SLOTS_CHUNK] : NULL;
}

static void forget_reply(struct ldma_slots *slots, struct ldma_slot *slot)
{
	slots->counters.reply_bytes -= slot->capacity;
	free(slot->buffer);
	slot->buffer = slot->reply = NULL;
	slot->capacity = slot->length = 0;
}

struct ldma_slots *ldma_slots_create(const uint8_t *session_id, uint64_t client, uint32_t count,
				     uint32_t cache_bytes)
{
	struct ldma_slots *slots = calloc(1, sizeof(*slots));

	if (!slots)
		return NULL;
	memcpy(slots->session_id, session_id, sizeof(slots->session_id));
	slots->client = client;
	slots->cache_bytes = cache_bytes;
	slots->references = 1;
	slots->size = slots->target = slots->peak = count;
	slots->request_max = slots->response_max = UINT32_MAX;
	return slots;
}

void ldma_slots_get(struct ldma_slots *slots)
{
	__atomic_fetch_add(&slots->references, 1, __ATOMIC_RELAXED);
}

void ldma_slots_put(struct ldma_slots *slots)
{
	if (__atomic_sub_fetch(&slots->references, 1, __ATOMIC_ACQ_REL))
		return;
	for (uint32_t i = 0; i < LDMA_SLOTS_MAX; i++) {
		struct ldma_slot *slot = slot_at(slots, i);

		if (slot)
			forget_reply(slots, slot);
	}
	for (uint32_t i = 0; i < LDMA_SLOTS_MAX / LDMA_SLOTS_CHUNK; i++)
		free(slots->chunks[i]);
	free(slots);
}

/* Removes the slots from the target on, if none of them is executing. */
static void retire(struct ldma_slots *slots)
{
	for (uint32_t i = slots->target; i < slots->size; i++) {
		struct ldma_slot *slot = slot_at(slots, i);

		if (slot && slot->is_executing)
			return;
	}
	for (uint32_t i = slots->target; i < slots->size; i++) {
		struct ldma_slot *slot = slot_at(slots, i);

		if (slot) {
			forget_reply(slots, slot);
			slot->has_returned = slot->is_used;
		}
	}
	slots->counters.retired += slots->size - slots->target;
	slots->size = slots->target;
}

/* Judges a request. LDMA_NFS_OK: it is to be executed now or, with *is_repeated, it is the last one again. */
static enum ldma_nfs_status judge(struct ldma_slots *slots, const struct ldma_sequence *asked,
				  bool *is_repeated)
{
	const struct ldma_slot *slot;

	*is_repeated = false;
	if (slots->is_closed)
		return LDMA_NFS_BADSESSION;
	if (asked->slot >= slots->size)
		return LDMA_NFS_BADSLOT;
	/* A request that was sent before slots were removed may be served after that: its highest id is no error. */
	if (asked->highest >= slots->peak)
		return LDMA_NFS_BAD_HIGH_SLOT;
	slot = slot_at(slots, asked->slot);
	if (slot && slot->is_executing)
		return asked->sequence == slot->asked.sequence ? LDMA_NFS_DELAY
							       : LDMA_NFS_SEQ_MISORDERED;
	if (!slot || !slot->is_used)
		return asked->sequence == 1 ? LDMA_NFS_OK : LDMA_NFS_SEQ_MISORDERED;
	if (asked->sequence == slot->sequence + 1 || (slot->has_returned && asked->sequence == 1))
		return LDMA_NFS_OK;
	if (slot->has_returned || asked->sequence != slot->sequence)
		return LDMA_NFS_SEQ_MISORDERED;
	/* RFC 8881 2.10.6.1.3.1: the same sequence is not enough to be the same request. */
	if (asked->fingerprint && slot->fingerprint && asked->fingerprint != slot->fingerprint)
		return LDMA_NFS_SEQ_FALSE_RETRY;
	*is_repeated = slot->reply != NULL;
	return *is_repeated ? LDMA_NFS_OK : LDMA_NFS_RETRY_UNCACHED_REP;
}

/* Returns whether the client keeps below the target: it was told on this slot, and its request shows it. */
static bool is_followed(const struct ldma_slots *slots, const struct ldma_slot *slot,
			const struct ldma_sequence *asked)
{
	return slots->target < slots->size && asked->slot < slots->target &&
	       asked->highest < slots->target && slot->is_used &&
	       slot->generation == slots->generation && !slots->executing_old;
}

#define EXACT_LEVELS 65

/* Returns the level of a number: there is one for each number up to 64, then eight for each power of two. */
static uint32_t level_of(uint32_t executing)
{
	uint32_t shift;

	if (executing < EXACT_LEVELS)
		return executing;
	shift = 28 - (uint32_t)__builtin_clz(executing);
	return EXACT_LEVELS + (shift - 3) * 8 + (executing >> shift) % 8;
}
_Static_assert(LDMA_SLOTS_MAX == 1024, "whose level is the last");

/* Returns the highest number of a level. */
static uint32_t most_of(uint32_t level)
{
	uint32_t above = level - EXACT_LEVELS;

	return level < EXACT_LEVELS ? level : ((9 + above % 8) << (above / 8 + 3)) - 1;
}

/* Lets the slot execute a request. Returns false without memory for it. */
static bool start(struct ldma_slots *slots, const struct ldma_sequence *asked, uint64_t now_ns)
{
	struct ldma_slot **chunk = &slots->chunks[asked->slot / LDMA_SLOTS_CHUNK], *slot;

	if (!*chunk)
		*chunk = calloc(LDMA_SLOTS_CHUNK, sizeof(**chunk));
	if (!*chunk)
		return false;
	slot = slot_at(slots, asked->slot);
	if (is_followed(slots, slot, asked))
		retire(slots);
	slot->is_executing = true;
	slot->asked = *asked;
	slot->asked_generation = slots->generation;
	slot->begun_ns = now_ns;
	slots->executing++;
	slots->account.levels[level_of(slots->executing)]++;
	slots->counters.executed++;
	slots->used_ns = now_ns;
	return true;
}

static void count(struct ldma_slots_counters *counters, enum ldma_nfs_status status)
{
	switch (status) {
	case LDMA_NFS_DELAY:
		counters->delayed++;
		break;
	case LDMA_NFS_SEQ_MISORDERED:
		counters->misordered++;
		break;
	case LDMA_NFS_RETRY_UNCACHED_REP:
		counters->uncached++;
		break;
	case LDMA_NFS_SEQ_FALSE_RETRY:
		counters->false_retries++;
		break;
	case LDMA_NFS_BADSLOT:
	case LDMA_NFS_BAD_HIGH_SLOT:
		counters->bad_slots++;
		break;
	default:
		break;
	}
}

static enum ldma_nfs_status copy_reply(struct ldma_slots *slots, const struct ldma_slot *slot,
				       uint8_t **replay, uint32_t *length)
{
	*replay = malloc(slot->length ? slot->length : 1);
	if (!*replay)
		return LDMA_NFS_DELAY;
	memcpy(*replay, slot->reply, slot->length);
	*length = slot->length;
	slots->counters.replayed++;
	return LDMA_NFS_OK;
}

enum ldma_nfs_status ldma_slots_begin(struct ldma_slots *slots, const struct ldma_sequence *asked,
				      uint64_t now_ns, uint8_t **replay, uint32_t *length)
{
	enum ldma_nfs_status status;
	bool is_repeated;

	*replay = NULL;
	*length = 0;
	ldma_lock(&slots->lock);
	status = judge(slots, asked, &is_repeated);
	if (!status && is_repeated)
		status = copy_reply(slots, slot_at(slots, asked->slot), replay, length);
	else if (!status && !start(slots, asked, now_ns))
		status = LDMA_NFS_DELAY;
	count(&slots->counters, status);
	ldma_unlock(&slots->lock);
	return status;
}

bool ldma_slots_try(struct ldma_slots *slots, const struct ldma_sequence *asked, uint64_t now_ns)
{
	bool is_repeated, is_started;

	ldma_lock(&slots->lock);
	is_started =
		!judge(slots, asked, &is_repeated) && !is_repeated && start(slots, asked, now_ns);
	ldma_unlock(&slots->lock);
	return is_started;
}

static void stop(struct ldma_slots *slots, struct ldma_slot *slot)
{
	slot->is_executing = false;
	slots->executing--;
	if (slot->asked_generation != slots->generation)
		slots->executing_old--;
}

/* Makes room for the reply. No other thread looks at the slot while it executes. */
static bool make_room(struct ldma_slot *slot, uint32_t length)
{
	uint32_t capacity = length < 128 ? 128 : length;
	uint8_t *buffer;

	if (slot->buffer && slot->capacity >= length && slot->capacity / 4 <= capacity)
		return true;
	buffer = malloc(capacity);
	if (!buffer)
		return false;
	free(slot->buffer);
	slot->buffer = buffer;
	slot->capacity = capacity;
	return true;
}

static void add_figures(struct ldma_slots *slots, uint64_t begun_ns,
			const struct ldma_slots_took *took)
{
	struct ldma_slots_counters *counters = &slots->counters;
	struct ldma_slots_account *account = &slots->account;

	account->operations++;
	account->read_bytes += took->read_bytes;
	account->written_bytes += took->written_bytes;
	account->waited_ns += took->waited_ns;
	account->storage_ns += took->storage_ns;
	ldma_times_add(&account->latency, took->now_ns > begun_ns ? took->now_ns - begun_ns : 0);
	if (!took->is_native)
		return;
	counters->reads += took->kind == LDMA_KIND_READ;
	counters->writes += took->kind == LDMA_KIND_WRITE;
	counters->commits += took->kind == LDMA_KIND_COMMIT;
	counters->read_bytes += took->read_bytes;
	counters->written_bytes += took->written_bytes;
}

bool ldma_slots_end(struct ldma_slots *slots, uint32_t id, const struct ldma_slots_took *took,
		    const void *reply, uint32_t length)
{
	struct ldma_slot *slot = slot_at(slots, id);
	uint32_t capacity = slot->capacity;
	bool is_kept = reply && length <= slots->cache_bytes &&
		       (slot->asked.cache_this || length <= LDMA_SLOTS_SMALL) &&
		       make_room(slot, length);

	if (is_kept)
		memcpy(slot->buffer, reply, length);
	ldma_lock(&slots->lock);
	slots->counters.reply_bytes += (uint64_t)slot->capacity - capacity;
	slot->reply = is_kept ? slot->buffer : NULL;
	slot->length = is_kept ? length : 0;
	slot->sequence = slot->asked.sequence;
	slot->fingerprint = slot->asked.fingerprint;
	slot->generation = slot->asked_generation;
	slot->is_used = true;
	slot->has_returned = false;
	add_figures(slots, slot->begun_ns, took);
	stop(slots, slot);
	ldma_unlock(&slots->lock);
	return is_kept;
}

uint32_t ldma_slots_most(const struct ldma_slots_account *before,
			 const struct ldma_slots_account *now)
{
	uint32_t level = LDMA_SLOTS_LEVELS;

	while (level-- > 0)
		if (now->levels[level] != before->levels[level])
			return most_of(level);
	return 0;
}

void ldma_slots_cancel(struct ldma_slots *slots, uint32_t id)
{
	ldma_lock(&slots->lock);
	stop(slots, slot_at(slots, id));
	slots->counters.executed--;
	ldma_unlock(&slots->lock);
}

bool ldma_slots_is_executing(struct ldma_slots *slots, uint32_t id)
{
	const struct ldma_slot *slot;
	bool is_executing;

	ldma_lock(&slots->lock);
	slot = id < LDMA_SLOTS_MAX ? slot_at(slots, id) : NULL;
	is_executing = slot && slot->is_executing;
	ldma_unlock(&slots->lock);
	return is_executing;
}

void ldma_slots_set_target(struct ldma_slots *slots, uint32_t target)
{
	ldma_lock(&slots->lock);
	if (target < slots->target) {
		slots->generation++;
		slots->executing_old = slots->executing;
	}
	slots->target = target;
	if (slots->size < target)
		slots->size = target;
	if (slots->peak < target)
		slots->peak = target;
	ldma_unlock(&slots->lock);
}

struct ldma_slots_limits ldma_slots_limits(struct ldma_slots *slots)
{
	struct ldma_slots_limits limits;

	ldma_lock(&slots->lock);
	limits.highest = slots->size - 1;
	limits.target_highest = slots->target - 1;
	ldma_unlock(&slots->lock);
	return limits;
}

void ldma_slots_close(struct ldma_slots *slots)
{
	ldma_lock(&slots->lock);
	slots->is_closed = true;
	ldma_unlock(&slots->lock);
}
