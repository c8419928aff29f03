/* SPDX-License-Identifier: BSD-2-Clause */
/* Gives each slot its operation, and judges the outcome. */
#include <errno.h>

#include "load/load_internal.h"
#include "load/pattern.h"

static uint64_t offset_of(const struct load_slot *slot)
{
	return (uint64_t)slot->block * slot->session->load->config.size + slot->done;
}

void load_slot_io(const struct load_slot *slot, struct ldma_io *ret)
{
	const struct load_session *session = slot->session;

	*ret = (struct ldma_io){
		.slot = slot->number,
		.sequence = slot->sequence + 1,
		.highest = (session->lingering ? session->most : session->limit) - 1,
		.offset = offset_of(slot),
		.count = session->load->config.size - slot->done,
	};
}

void load_slot_fill(const struct load_slot *slot, uint8_t *memory)
{
	const struct load_session *session = slot->session;

	ldma_pattern_fill(ldma_pattern_base(session->seed, slot->generation), offset_of(slot),
			  memory, session->load->config.size - slot->done);
}

static void count_wait(struct ldma_load_counters *counters, uint64_t ns)
{
	counters->waited++;
	counters->waited_ns += ns;
}

void load_slot_sent(struct load_slot *slot, uint64_t now_ns)
{
	slot->state = SLOT_OPEN;
	if (slot->queued_ns == now_ns || slot->is_fill)
		return;
	count_wait(&slot->session->figures.counters, now_ns - slot->queued_ns);
	count_wait(&slot->session->load->counters, now_ns - slot->queued_ns);
}

static void leave_block(struct load_slot *slot, uint32_t generation)
{
	struct load_session *session = slot->session;

	slot->has_operation = false;
	if (slot->is_write) {
		session->users[slot->block] = 0;
		session->generations[slot->block] = generation;
	} else {
		session->users[slot->block]--;
	}
}

void load_slot_drop(struct load_slot *slot)
{
	leave_block(slot, 0);
}

/* Ends a failed operation; its effect on the file is not known. */
static void finish_failed(struct load_slot *slot, uint64_t now_ns)
{
	leave_block(slot, 0);
	if (slot->is_fill)
		load_session_end(slot->session);
	load_slot_delay(slot, now_ns); /* so that errors do not repeat at full speed */
}

static void count(struct ldma_load_counters *counters, const struct load_slot *slot, uint32_t size)
{
	if (slot->is_fill) {
		counters->fills++;
		counters->filled_bytes += size;
	} else if (slot->is_write) {
		counters->writes++;
		counters->written_bytes += size;
	} else {
		counters->reads++;
		counters->read_bytes += size;
	}
}

static void finish(struct load_slot *slot, uint64_t now_ns)
{
	struct load_session *session = slot->session;
	struct ldma_load *load = session->load;
	uint64_t latency_ns = now_ns > slot->started_ns ? now_ns - slot->started_ns : 0;

	leave_block(slot, slot->generation);
	count(&session->figures.counters, slot, load->config.size);
	count(&load->counters, slot, load->config.size);
	if (slot->is_fill) {
		load_session_filled(session, now_ns);
	} else {
		ldma_latency_add(&session->figures.latency, latency_ns);
		ldma_latency_add(&load->interval, latency_ns);
	}
	load_slot_rest(slot, now_ns);
}

/* Compares what was read with what has to be there. */
static bool is_right(const struct load_slot *slot, const uint8_t *data, uint32_t length)
{
	struct load_session *session = slot->session;
	uint64_t base = ldma_pattern_base(session->seed, slot->generation);
	size_t right;

	if (!session->load->config.verifies || !slot->generation)
		return true;
	right = ldma_pattern_check(base, offset_of(slot), data, length);
	if (right == length)
		return true;
	load_session_wrong(session, offset_of(slot), slot->generation, data, length,
			   (uint32_t)right);
	return false;
}

static void advance(struct load_slot *slot, const struct ldma_io_reply *reply,
		    const uint8_t *placed, uint64_t now_ns)
{
	struct load_session *session = slot->session;
	uint32_t size = session->load->config.size;

	if (!slot->is_write && !is_right(slot, placed ? placed : reply->data, reply->count)) {
		finish_failed(slot, now_ns);
		return;
	}
	slot->done += reply->count;
	if (slot->done >= size) {
		finish(slot, now_ns);
	} else if (!reply->count || reply->is_end) {
		load_session_error(session, "%s of %u bytes at offset %lu ended after %u",
				   slot->is_write ? "WRITE" : "READ", size,
				   (unsigned long)(offset_of(slot) - slot->done), slot->done);
		finish_failed(slot, now_ns);
	} else {
		load_link_queue(session->link, slot); /* the rest of it */
	}
}

/* Returns whether the operation goes on in spite of the status, at once or later. */
static bool comes_again(struct load_slot *slot, const struct ldma_io_reply *reply, uint64_t now_ns)
{
	struct load_session *session = slot->session;
	bool is_sequence = reply->operation == LDMA_NFS_OP_SEQUENCE;

	if (reply->status == LDMA_NFS_DELAY || reply->status == LDMA_NFS_GRACE ||
	    (is_sequence && reply->status == LDMA_NFS_BADSLOT)) {
		session->figures.counters.delays++;
		session->load->counters.delays++;
		load_slot_delay(slot, now_ns);
		return true;
	}
	if (is_sequence && reply->status == LDMA_NFS_SEQ_MISORDERED && slot->is_restarted) {
		slot->sequence = slot->retired; /* the server never forgot the slot */
		slot->is_restarted = false;
	} else if (reply->status == LDMA_NFS_RETRY_UNCACHED_REP ||
		   reply->status == LDMA_NFS_SEQ_FALSE_RETRY) {
		/* A call that was lost had been executed. A server may say so after SEQUENCE, which then was
		 * counted. */
		slot->sequence += is_sequence;
	} else {
		return false;
	}
	load_link_queue(session->link, slot);
	return true;
}

void load_slot_replied(struct load_slot *slot, const uint8_t *message, uint32_t length,
		       const uint8_t *placed, uint32_t placed_length, uint64_t now_ns)
{
	struct load_session *session = slot->session;
	struct ldma_io_reply reply;
	enum ldma_io_verdict verdict;
	struct ldma_io io;

	load_slot_io(slot, &io);
	verdict = ldma_io_parse(message, length, placed_length, session->id, &io, slot->is_write,
				&reply);
	if (reply.has_sequence && verdict != LDMA_IO_MALFORMED) {
		slot->sequence++;
		slot->is_restarted = false;
		load_session_follow(session, reply.target);
	}
	if (verdict == LDMA_IO_DONE) {
		advance(slot, &reply, placed_length ? placed : NULL, now_ns);
		return;
	}
	if (verdict == LDMA_IO_FAILED && comes_again(slot, &reply, now_ns))
		return;
	if (verdict == LDMA_IO_FAILED) {
		load_count_status(session->load, reply.operation, reply.status);
		load_session_error(session, "operation %u at offset %lu failed with status %u",
				   reply.operation, (unsigned long)io.offset, reply.status);
	} else if (verdict == LDMA_IO_REFUSED) {
		load_session_error(session, "the server refused a call (RPC status %u)",
				   reply.status);
	} else {
		load_session_error(session, "a reply of %u bytes is none to the call at offset %lu",
				   length, (unsigned long)io.offset);
	}
	finish_failed(slot, now_ns);
}

void load_slot_lost(struct load_slot *slot, const struct load_link *link, int error,
		    uint64_t now_ns)
{
	struct load_session *session = slot->session;

	if (session->link->error) {
		load_slot_hold(slot);
		load_session_lose(session);
		return;
	}
	if (link->error) { /* repeated with the same sequence, so that it is executed once */
		session->figures.counters.repeats++;
		session->load->counters.repeats++;
		load_link_queue(session->link, slot);
		return;
	}
	load_session_error(session,
			   error == -EREMOTEIO
				   ? "the server answered with RDMA_ERROR at offset %lu"
				   : "a reply claims memory that was not offered, at offset %lu",
			   (unsigned long)offset_of(slot));
	finish_failed(slot, now_ns);
}
