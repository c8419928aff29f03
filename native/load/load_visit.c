/* SPDX-License-Identifier: BSD-2-Clause */
/* Other threads than the one that runs the load visit it: they take figures, and make calls of their own. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "load/load_internal.h"

#define CALL_MOST 65536 /* bytes of another thread's call */

static uint32_t open_calls(const struct ldma_load *load)
{
	uint32_t open = 0;

	for (uint32_t i = 0; i < load->link_count; i++)
		open += load->links[i]->open;
	return open;
}

uint64_t load_cpu_ns(pthread_t thread)
{
	struct timespec used = {0};
	clockid_t clock;

	if (!pthread_getcpuclockid(thread, &clock))
		clock_gettime(clock, &used);
	return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

static uint64_t granted(const struct ldma_load *load)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < load->link_count; i++)
		if (!load->links[i]->error)
			sum += load->config.port ? load->links[i]->caller.granted
						 : LDMA_STREAM_CALLS;
	return sum;
}

static uint32_t running(const struct ldma_load *load)
{
	uint32_t count = load->running;

	for (uint32_t i = load->active; i < load->session_count; i++)
		count -= load->sessions[i]->phase == SESSION_RUNNING;
	return count;
}

void ldma_load_figures(struct ldma_load *load, struct ldma_load_figures *ret)
{
	load_visit(load);
	*ret = (struct ldma_load_figures){
		.now_ns = load_now(),
		.began_ns = load->began_ns,
		.cpu_ns =
			load->is_running ? load_cpu_ns(load->thread) - load->cpu_ns : load->cpu_ns,
		.counters = load->counters,
		.sessions = load->session_count,
		.filled = load->filled,
		.running = running(load),
		.failed = load->failed,
		.lost = load->lost,
		.open = open_calls(load),
		.granted = granted(load),
	};
	memcpy(&ret->latency, &load->interval, sizeof(ret->latency));
	memcpy(ret->statuses, load->statuses, sizeof(ret->statuses));
	load->interval = (struct ldma_latency){0};
	load_leave(load);
}

int ldma_load_session_figures(struct ldma_load *load, uint32_t session,
			      struct ldma_load_session_figures *ret)
{
	int error = -EINVAL;

	load_visit(load);
	if (session < load->session_count) {
		*ret = load->sessions[session]->figures;
		ret->limit = load->sessions[session]->limit;
		error = 0;
	}
	load_leave(load);
	return error;
}

uint32_t ldma_load_places(struct ldma_load *load, int32_t *ret, uint32_t room)
{
	uint32_t count;

	load_visit(load);
	count = load->session_count;
	for (uint32_t i = 0; i < count && i < room; i++) {
		const struct load_session *session = load->sessions[i];

		if (session->phase == SESSION_FAILED)
			ret[i] = LDMA_LOAD_FAILED;
		else if (session->phase == SESSION_LOST)
			ret[i] = LDMA_LOAD_LOST;
		else
			ret[i] = (int32_t)session->link->number;
	}
	load_leave(load);
	return count;
}

uint64_t ldma_load_heard_ns(struct ldma_load *load)
{
	uint64_t heard_ns;

	load_visit(load);
	heard_ns = load->heard_ns;
	load_leave(load);
	return heard_ns;
}

uint64_t ldma_load_session_bytes(uint32_t depth, uint64_t blocks)
{
	return sizeof(struct load_session) + depth * sizeof(struct load_slot) +
	       blocks * (sizeof(*((struct load_session *)0)->generations) +
			 sizeof(*((struct load_session *)0)->users));
}

int ldma_load_call(struct ldma_load *load, uint32_t link, uint64_t user, const uint8_t *message,
		   uint32_t length)
{
	struct load_call *call;
	int error = 0;

	if (length < 8 || length > CALL_MOST || length % 4)
		return -EINVAL;
	call = calloc(1, sizeof(*call));
	if (call)
		call->message = malloc(length);
	if (!call || !call->message) {
		free(call);
		return -ENOMEM;
	}
	memcpy(call->message, message, length);
	call->length = length;
	call->user = user;
	load_visit(load);
	if (link >= load->link_count) {
		error = -EINVAL;
	} else if (load->links[link]->error) {
		error = -ENOTCONN;
	} else {
		*load->links[link]->calls_end = call;
		load->links[link]->calls_end = &call->next;
	}
	load_leave(load);
	if (error) {
		free(call->message);
		free(call);
	}
	load_wake(load);
	return error;
}

bool ldma_load_take_reply(struct ldma_load *load, struct ldma_load_reply *ret)
{
	struct load_call *call;

	load_visit(load);
	call = load->replies;
	if (call) {
		load->replies = call->next;
		if (!load->replies)
			load->replies_end = &load->replies;
	}
	load_leave(load);
	if (!call)
		return false;
	*ret = (struct ldma_load_reply){call->user, call->error, call->reply, call->reply_length};
	free(call->message);
	free(call);
	return true;
}

int ldma_load_event_fd(const struct ldma_load *load)
{
	return load->event_fd;
}

int ldma_load_link_error(struct ldma_load *load, uint32_t link)
{
	int error = -EINVAL;

	load_visit(load);
	if (link < load->link_count)
		error = load->links[link]->error;
	load_leave(load);
	return error;
}
