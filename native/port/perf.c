/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/perf.h"

#include <errno.h>
#include <stdlib.h>

#include "port/port_internal.h"

#define PATIENCE_NS UINT64_C(10000000000)
#define SLICE_NS UINT64_C(50000000) /* so often a loop that waits checks whether it is to end */
#define BATCH 64                    /* completions taken in a row */

static struct ldma_send_wr request(struct ldma_perf *perf, const struct ldma_perf_peer *peer,
				   uint64_t wr_id)
{
	return (struct ldma_send_wr){
		.wr_id = wr_id,
		.sge = &perf->local,
		.sge_count = perf->local.length > 0,
		.opcode = perf->opcode,
		.flags = LDMA_SEND_SIGNALED,
		.remote_va = peer->remote_va,
		.rkey = peer->rkey,
	};
}

/* Waits for a completion. Returns 0 once there is one, or a negative error. */
static int await_completion(struct ldma_perf *perf)
{
	uint64_t started_ns = ldma_port_now(), waited_ns = 0;

	while (!perf->is_cancelled) {
		uint64_t spin_ns = perf->spin_ns > waited_ns ? perf->spin_ns - waited_ns : 0;

		if (ldma_port_wait(perf->port, perf->cq, spin_ns, SLICE_NS) > 0)
			return 0;
		waited_ns = ldma_port_now() - started_ns;
		if (waited_ns > PATIENCE_NS)
			return -ETIMEDOUT;
	}
	return -ECANCELED;
}

/* Takes the completions that are there. Returns how many, or a negative error. */
static int take(struct ldma_perf *perf, struct ldma_wc *wcs)
{
	uint32_t count = ldma_cq_poll(perf->cq, wcs, BATCH);

	for (uint32_t i = 0; i < count; i++) {
		if (wcs[i].status == LDMA_WC_SUCCESS)
			continue;
		perf->status = wcs[i].status;
		return -EIO;
	}
	return (int)count;
}

static int await_and_take(struct ldma_perf *perf, struct ldma_wc *wcs)
{
	int error = await_completion(perf);

	return error ? error : take(perf, wcs);
}

/* Returns where the request with this number goes: scattered evenly, the first one to the start. */
static uint64_t place(const struct ldma_perf *perf, uint64_t number)
{
	return perf->places > 1
		       ? number * UINT64_C(0x9e3779b97f4a7c15) % perf->places * perf->stride
		       : 0;
}

/* Posts up to its depth on every connection, under one lock, so that messages share trains. */
static int post(struct ldma_perf *perf, uint32_t *idle, uint64_t *posted)
{
	uint64_t now_ns = ldma_port_now();
	int error = 0;

	ldma_port_lock(perf->port);
	for (uint32_t i = 0; i < perf->peer_count && !error; i++) {
		struct ldma_send_wr wr = request(perf, &perf->peers[i], i);

		for (; idle[i] && *posted < perf->iterations && !error; idle[i]--, ++*posted) {
			if (perf->posted_ns)
				perf->posted_ns[*posted] = now_ns;
			wr.remote_va = perf->peers[i].remote_va + place(perf, *posted);
			error = ldma_qp_post_send(perf->peers[i].qp, &wr);
		}
	}
	ldma_port_unlock(perf->port);
	return error;
}

static int stream(struct ldma_perf *perf, uint32_t *idle)
{
	uint32_t depth = perf->depth * perf->peer_count, idle_total = depth;
	struct ldma_wc wcs[BATCH];
	uint64_t posted = 0;

	for (uint32_t i = 0; i < perf->peer_count; i++)
		idle[i] = perf->depth;
	while (perf->done < perf->iterations) {
		int result = 0;
		uint64_t now_ns;

		/* Posts a quarter of the depth at a time, so that a train is worth its call. */
		if (posted < perf->iterations && idle_total >= (depth + 3) / 4) {
			result = post(perf, idle, &posted);
			idle_total = 0;
		}
		if (!result)
			result = await_and_take(perf, wcs);
		if (result < 0)
			return result;
		now_ns = ldma_port_now();
		for (int i = 0; i < result; i++) {
			idle[wcs[i].wr_id]++;
			if (perf->completed_ns)
				perf->completed_ns[perf->done + (uint32_t)i] = now_ns;
		}
		idle_total += (uint32_t)result;
		perf->done += (uint32_t)result;
	}
	return 0;
}

int ldma_perf_stream(struct ldma_perf *perf)
{
	uint32_t *idle = calloc(perf->peer_count, sizeof(*idle));
	int result = -ENOMEM;

	perf->started_ns = ldma_port_now();
	if (idle)
		result = stream(perf, idle);
	perf->ended_ns = ldma_port_now();
	free(idle);
	return result;
}

uint64_t ldma_perf_longest_gap_ns(const struct ldma_perf *perf)
{
	uint64_t longest_ns = 0, before_ns = perf->started_ns;

	for (uint64_t i = 0; perf->completed_ns && i < perf->done; i++) {
		if (perf->completed_ns[i] - before_ns > longest_ns)
			longest_ns = perf->completed_ns[i] - before_ns;
		before_ns = perf->completed_ns[i];
	}
	return longest_ns;
}

double ldma_perf_best_ns(const struct ldma_perf *perf)
{
	double best = 0;

	if (!perf->posted_ns || !perf->completed_ns)
		return 0;
	for (uint64_t i = 0; i < perf->done; i++) {
		if (i && perf->posted_ns[i] == perf->posted_ns[i - 1])
			continue; /* the run from the message before begins then, too, and is one longer */
		for (uint64_t j = i; j < perf->done; j++) {
			double ns = (double)(perf->completed_ns[j] - perf->posted_ns[i]) /
				    (double)(j - i + 1);

			if (best == 0 || ns < best)
				best = ns;
		}
	}
	return best;
}

/* Posts a Receive. It is known by its place: those of one connection are in a row. */
static int post_receive(struct ldma_perf *perf, uint64_t place)
{
	uint64_t peer = place / perf->receives;
	struct ldma_sge sge = perf->received;
	struct ldma_recv_wr wr = {.wr_id = place, .sge = &sge, .sge_count = 1};

	if (perf->buffers) {
		struct ldma_pool_buffer buffer;
		int error = perf->mapped
				    ? ldma_mapped_take(perf->mapped[peer], &buffer)
				    : ldma_pool_take(perf->pools[peer], LDMA_POOL_DATA, &buffer);

		if (error)
			return error;
		perf->buffers[place] = (struct ldma_perf_buffer){buffer.handle, buffer.va};
		sge.va = buffer.va;
		sge.lkey = buffer.lkey;
	}
	return ldma_qp_post_recv(perf->peers[peer].qp, &wr);
}

static int return_buffer(struct ldma_perf *perf, uint64_t place)
{
	struct ldma_perf_buffer buffer;

	if (!perf->buffers || !perf->buffers[place].handle)
		return 0;
	buffer = perf->buffers[place];
	perf->buffers[place].handle = 0;
	if (perf->mapped)
		return ldma_mapped_return(perf->mapped[place / perf->receives], buffer.handle,
					  buffer.va);
	return ldma_pool_return(perf->pools[place / perf->receives], buffer.handle);
}

/* Posts new Receives for those that completed. All buffers go back before the first is taken, as in a server that works
 * batch by batch. */
static int replace_receives(struct ldma_perf *perf, const struct ldma_wc *wcs, uint32_t count)
{
	int error = 0;

	ldma_port_lock(perf->port);
	for (uint32_t i = 0; i < count && !error; i++)
		error = return_buffer(perf, wcs[i].wr_id);
	for (uint32_t i = 0; i < count && !error; i++)
		error = post_receive(perf, wcs[i].wr_id);
	ldma_port_unlock(perf->port);
	return error;
}

int ldma_perf_prepare(struct ldma_perf *perf)
{
	uint64_t places = (uint64_t)perf->peer_count * perf->receives;
	int error = 0;

	for (uint64_t place = 0; place < places && !error; place++)
		error = replace_receives(perf, &(struct ldma_wc){.wr_id = place}, 1);
	return error;
}

int ldma_perf_drain(struct ldma_perf *perf)
{
	struct ldma_wc wcs[BATCH];

	perf->done = perf->refill_ns = 0;
	while (perf->done < perf->iterations) {
		int result = await_and_take(perf, wcs);
		uint64_t now_ns = ldma_port_now();

		if (result > 0 && !perf->done)
			perf->started_ns = now_ns;
		if (result > 0) {
			perf->done += (uint32_t)result;
			result = replace_receives(perf, wcs, (uint32_t)result);
			perf->refill_ns += ldma_port_now() - now_ns;
		}
		if (result < 0)
			return result;
	}
	perf->ended_ns = ldma_port_now();
	return 0;
}

int ldma_perf_release(struct ldma_perf *perf)
{
	uint64_t places = (uint64_t)perf->peer_count * perf->receives;
	int error = 0;

	ldma_port_lock(perf->port);
	for (uint64_t place = 0; place < places && !error; place++)
		error = return_buffer(perf, place);
	ldma_port_unlock(perf->port);
	return error;
}

/* Waits until the last byte of the other side's WRITE is there. This side has no request under way that would complete
 * when the connection ends. */
static int await_last_byte(struct ldma_perf *perf, uint8_t byte)
{
	const volatile uint8_t *state = &perf->peers[0].qp->state;
	uint64_t started_ns = ldma_port_now();
	struct ldma_wc wcs[BATCH];

	while (*perf->last_byte_received != byte) {
		ldma_port_serve(perf->port);
		if (perf->is_cancelled)
			return -ECANCELED;
		if (!ldma_cq_is_empty(perf->cq)) /* only failed requests complete */
			return take(perf, wcs);
		if (*state == LDMA_QP_ERR) {
			perf->status = LDMA_WC_WR_FLUSH_ERR;
			return -EIO;
		}
		if (ldma_port_now() - started_ns > PATIENCE_NS)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Waits until the other side's message of this turn is there, or this side's READ is done. */
static int await_turn(struct ldma_perf *perf, uint64_t turn)
{
	struct ldma_wc wcs[BATCH];
	int result;

	if (perf->opcode == LDMA_WR_RDMA_WRITE)
		return await_last_byte(perf, (uint8_t)turn);
	do
		result = await_and_take(perf, wcs);
	while (!result);
	return result < 0 ? result : 0;
}

/* Posts this side's message, and a new Receive for a used one. */
static int take_turn(struct ldma_perf *perf, uint64_t turn, bool owes_receive)
{
	struct ldma_send_wr wr = request(perf, &perf->peers[0], 0);
	struct ldma_recv_wr receive = {.sge = &perf->received, .sge_count = 1};
	struct ldma_qp *qp = perf->peers[0].qp;
	int error = 0;

	if (perf->opcode == LDMA_WR_RDMA_WRITE)
		*perf->last_byte_sent = (uint8_t)turn;
	if (perf->opcode != LDMA_WR_RDMA_READ)
		wr.flags = 0; /* the other side's answer takes the place of a completion */
	ldma_port_lock(perf->port);
	if (perf->opcode == LDMA_WR_SEND && owes_receive)
		error = ldma_qp_post_recv(qp, &receive);
	if (!error)
		error = ldma_qp_post_send(qp, &wr);
	ldma_port_unlock(perf->port);
	return error;
}

int ldma_perf_ping(struct ldma_perf *perf, bool is_first, uint64_t *ret_ns)
{
	int error = 0;

	perf->started_ns = ldma_port_now();
	for (uint64_t turn = 1; turn <= perf->iterations && !error; turn++) {
		uint64_t started_ns = ldma_port_now();

		error = is_first ? take_turn(perf, turn, turn > 1) : await_turn(perf, turn);
		if (!error)
			error = is_first ? await_turn(perf, turn) : take_turn(perf, turn, true);
		if (ret_ns)
			ret_ns[turn - 1] = ldma_port_now() - started_ns;
		perf->done += !error;
	}
	perf->ended_ns = ldma_port_now();
	if (!error && is_first && perf->opcode == LDMA_WR_SEND)
		error = replace_receives(perf, &(struct ldma_wc){.wr_id = 0}, 1);
	return error;
}
