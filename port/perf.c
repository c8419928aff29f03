#include "perf.h"

#include <errno.h>
#include <stdlib.h>

#include "port_internal.h"

#define PATIENCE_NS UINT64_C(10000000000)
#define BATCH 64 /* requests posted, or completions taken, in a row */

static struct ldma_send_wr request(struct ldma_perf *perf, const struct ldma_perf_peer *peer,
				   uint64_t wr_id)
{
	return (struct ldma_send_wr){
		.wr_id = wr_id,
		.sge = &perf->local,
		.sge_count = perf->size > 0,
		.opcode = perf->opcode,
		.flags = LDMA_SEND_SIGNALED,
		.remote_va = peer->remote_va,
		.rkey = peer->rkey,
	};
}

/* Takes completions; how many, or a negative error. */
static int take(struct ldma_perf *perf, struct ldma_wc *wcs)
{
	int result = ldma_port_wait(perf->port, perf->cq, perf->spin_ns, PATIENCE_NS);
	uint32_t count;

	if (perf->is_cancelled && *perf->is_cancelled)
		return -ECANCELED;
	if (!result)
		return -ETIMEDOUT;
	if (result < 0)
		return 0; /* a signal, which is the caller's */
	count = ldma_cq_poll(perf->cq, wcs, BATCH);
	for (uint32_t i = 0; i < count; i++) {
		if (wcs[i].status == LDMA_WC_SUCCESS)
			continue;
		perf->status = wcs[i].status;
		return -EIO;
	}
	return (int)count;
}

/* Every connection up to its depth, under one lock: messages share trains. */
static int post(struct ldma_perf *perf, uint32_t *idle, uint64_t *left)
{
	int error = 0;

	ldma_port_lock(perf->port);
	for (uint32_t i = 0; i < perf->peer_count && *left && !error; i++) {
		struct ldma_send_wr wr = request(perf, &perf->peers[i], i);

		for (; idle[i] && *left && !error; idle[i]--, --*left)
			error = ldma_qp_post_send(perf->peers[i].qp, &wr);
	}
	ldma_port_unlock(perf->port);
	return error;
}

static int stream(struct ldma_perf *perf, uint32_t *idle)
{
	uint32_t depth = perf->depth * perf->peer_count, idle_total = depth;
	uint64_t left = perf->iterations;
	struct ldma_wc wcs[BATCH];
	int result = 0;

	for (uint32_t i = 0; i < perf->peer_count; i++)
		idle[i] = perf->depth;
	while (perf->done < perf->iterations) {
		/* A quarter at a time, so that a train is worth its call. */
		if (left && idle_total >= (depth + 3) / 4) {
			result = post(perf, idle, &left);
			idle_total = 0;
			if (result < 0)
				return result;
		}
		result = take(perf, wcs);
		if (result < 0)
			return result;
		for (int i = 0; i < result; i++)
			idle[wcs[i].wr_id]++;
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

static int post_receives(struct ldma_perf *perf, const struct ldma_wc *wcs, uint32_t count)
{
	struct ldma_recv_wr wr = {.sge = &perf->received, .sge_count = 1};
	int error = 0;

	ldma_port_lock(perf->port);
	for (uint32_t i = 0; i < count && !error; i++) {
		wr.wr_id = wcs[i].wr_id;
		error = ldma_qp_post_recv(perf->peers[wcs[i].wr_id].qp, &wr);
	}
	ldma_port_unlock(perf->port);
	return error;
}

int ldma_perf_prepare(struct ldma_perf *perf)
{
	for (uint32_t i = 0; i < perf->peer_count; i++) {
		struct ldma_wc wc = {.wr_id = i};

		for (uint32_t posted = 0; posted < perf->depth; posted++) {
			int error = post_receives(perf, &wc, 1);

			if (error)
				return error;
		}
	}
	return 0;
}

int ldma_perf_drain(struct ldma_perf *perf)
{
	struct ldma_wc wcs[BATCH];
	int result = 0;

	while (perf->done < perf->iterations) {
		result = take(perf, wcs);
		if (result > 0 && !perf->done)
			perf->started_ns = ldma_port_now();
		if (result > 0) {
			perf->done += (uint32_t)result;
			result = post_receives(perf, wcs, (uint32_t)result);
		}
		if (result < 0)
			return result;
	}
	perf->ended_ns = ldma_port_now();
	return 0;
}

/* Until the other side's message number turn is there, or our READ is done. */
static int await_turn(struct ldma_perf *perf, uint64_t turn)
{
	uint64_t started_ns = ldma_port_now();
	struct ldma_wc wcs[BATCH];
	int result = 0;

	if (perf->opcode != LDMA_WR_RDMA_WRITE) {
		while (!result)
			result = take(perf, wcs);
		return result < 0 ? result : 0;
	}
	while (*perf->landing != (uint8_t)turn) {
		ldma_port_serve(perf->port);
		if (perf->is_cancelled && *perf->is_cancelled)
			return -ECANCELED;
		if (ldma_port_now() - started_ns > PATIENCE_NS)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Our message, and room for the next of the other side. */
static int take_turn(struct ldma_perf *perf, uint64_t turn)
{
	struct ldma_send_wr wr = request(perf, &perf->peers[0], 0);
	struct ldma_recv_wr receive = {.sge = &perf->received, .sge_count = 1};
	struct ldma_qp *qp = perf->peers[0].qp;
	int error = 0;

	if (perf->opcode == LDMA_WR_RDMA_WRITE)
		*perf->departing = (uint8_t)turn;
	if (perf->opcode != LDMA_WR_RDMA_READ)
		wr.flags = 0; /* the answer says it all */
	ldma_port_lock(perf->port);
	if (perf->opcode == LDMA_WR_SEND && turn > 1)
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

		error = is_first ? take_turn(perf, turn) : await_turn(perf, turn);
		if (!error)
			error = is_first ? await_turn(perf, turn) : take_turn(perf, turn);
		if (ret_ns)
			ret_ns[turn - 1] = ldma_port_now() - started_ns;
		perf->done += !error;
	}
	perf->ended_ns = ldma_port_now();
	return error;
}
