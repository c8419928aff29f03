/* SPDX-License-Identifier: BSD-2-Clause */
#include "load/load.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/wake.h"
#include "load/load_internal.h"

#define SLICE_NS UINT64_C(1000000) /* at least so often the load looks for visitors */
#define BUFFER_LEAST 16384         /* a long reply to another thread's call has to fit, too */
#define PAGE 4096

uint64_t load_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint32_t ldma_load_buffer_bytes(uint32_t size)
{
	return ((size < BUFFER_LEAST ? BUFFER_LEAST : size) + PAGE - 1) / PAGE * PAGE;
}

/* All threads but the one that runs the load lock it by this. */
void load_visit(struct ldma_load *load)
{
	__atomic_add_fetch(&load->visitors, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&load->lock);
	__atomic_sub_fetch(&load->visitors, 1, __ATOMIC_RELAXED);
}

void load_leave(struct ldma_load *load)
{
	pthread_mutex_unlock(&load->lock);
}

void load_wake(struct ldma_load *load)
{
	if (load->wake_fd >= 0)
		ldma_signal(load->wake_fd);
}

static int open_epoll(struct ldma_load *load)
{
	struct epoll_event event = {.events = EPOLLIN};

	load->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	load->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (load->epoll_fd < 0 || load->wake_fd < 0)
		return -errno;
	return epoll_ctl(load->epoll_fd, EPOLL_CTL_ADD, load->wake_fd, &event) ? -errno : 0;
}

int ldma_load_create(const struct ldma_load_config *config, struct ldma_load **ret)
{
	struct ldma_load *load;
	int error = 0;

	if (!config->size || config->size > 1 << 30 || !config->depth ||
	    config->rw > LDMA_LOAD_MIX || (config->port && !config->cq))
		return -EINVAL;
	load = calloc(1, sizeof(*load));
	if (!load)
		return -ENOMEM;
	load->config = *config;
	load->active = UINT32_MAX;
	load->replies_end = &load->replies;
	load->epoll_fd = load->wake_fd = -1;
	pthread_mutex_init(&load->lock, NULL);
	load->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (load->event_fd < 0)
		error = -errno;
	else if (!config->port)
		error = open_epoll(load);
	if (error) {
		ldma_load_destroy(load);
		return error;
	}
	*ret = load;
	return 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void ldma_load_destroy(struct ldma_load *load)
{
	struct ldma_load_reply reply;

	while (ldma_load_take_reply(load, &reply))
		free(reply.message);
	for (uint32_t i = 0; i < load->link_count; i++)
		load_link_destroy(load->links[i]);
	for (uint32_t i = 0; i < load->session_count; i++)
		load_session_destroy(load->sessions[i]);
	free(load->sessions);
	free(load->heap);
	close_fd(load->event_fd);
	close_fd(load->wake_fd);
	close_fd(load->epoll_fd);
	pthread_mutex_destroy(&load->lock);
	free(load);
}

/* Keeps a connection that is set up and returns its number, or destroys it and returns the error. */
static int keep(struct ldma_load *load, struct load_link *link, int error)
{
	if (error) {
		load_link_destroy(link);
		return error;
	}
	load->links[load->link_count] = link;
	return (int)load->link_count++;
}

static int add_rdma(struct ldma_load *load, const struct ldma_load_rdma *rdma)
{
	struct ldma_caller_config config = {
		.qp = rdma->qp,
		.calls = rdma->calls,
		.send_bytes = rdma->send_bytes,
		.receive_bytes = rdma->receive_bytes,
		.memory = rdma->inline_memory,
		.va = rdma->inline_va,
		.lkey = rdma->inline_key,
		.tag = load->link_count,
		.first_xid = rdma->first_xid,
	};
	struct load_link *link;
	int error;

	if (!load->config.port || load->link_count == LDMA_LINK_MOST)
		return -EINVAL;
	link = load_link_create(load);
	if (!link)
		return -ENOMEM;
	link->data_memory = rdma->data_memory;
	link->data_va = rdma->data_va;
	link->data_key = rdma->data_key;
	error = ldma_caller_init(&link->caller, &config);
	if (!error) {
		ldma_port_lock(load->config.port);
		error = ldma_caller_prepare(&link->caller);
		ldma_port_unlock(load->config.port);
	}
	return keep(load, link, error);
}

int ldma_load_add_rdma(struct ldma_load *load, const struct ldma_load_rdma *rdma)
{
	int result;

	load_visit(load);
	result = add_rdma(load, rdma);
	load_leave(load);
	return result;
}

static int add_tcp(struct ldma_load *load, int fd)
{
	struct load_link *link;

	if (load->config.port || load->link_count == LDMA_LINK_MOST)
		return -EINVAL;
	link = load_link_create(load);
	return link ? keep(load, link, load_tcp_open(link, fd)) : -ENOMEM;
}

int ldma_load_add_tcp(struct ldma_load *load, int fd)
{
	int result;

	load_visit(load);
	result = add_tcp(load, fd);
	load_leave(load);
	return result;
}

int ldma_load_limit(struct ldma_load *load, uint32_t link, uint32_t send_bytes)
{
	int error = -EINVAL;

	load_visit(load);
	if (link < load->link_count && load->config.port)
		error = ldma_caller_limit(&load->links[link]->caller, send_bytes);
	load_leave(load);
	return error;
}

/* Makes room for one more session in the tables. */
static int grow(struct ldma_load *load)
{
	uint32_t room = load->session_room ? 2 * load->session_room : 64;
	struct load_session **sessions, **heap;

	if (load->session_count < load->session_room)
		return 0;
	sessions = realloc(load->sessions, room * sizeof(struct load_session *));
	if (sessions)
		load->sessions = sessions;
	heap = realloc(load->heap, (room + 1) * sizeof(struct load_session *));
	if (heap)
		load->heap = heap;
	if (!sessions || !heap)
		return -ENOMEM;
	load->session_room = room;
	return 0;
}

static int add_session(struct ldma_load *load, const struct ldma_load_session_config *config)
{
	struct load_session *session;
	uint64_t now_ns = load_now();
	int error = config->link < load->link_count ? grow(load) : -EINVAL;

	if (!error)
		error = load_session_create(load, config, &session);
	if (error)
		return error;
	session->number = load->session_count;
	load->sessions[load->session_count++] = session;
	load->filled += session->phase == SESSION_READY;
	if (session->link->error) {
		load_session_lose(session);
	} else if (session->phase == SESSION_READY) {
		if (load->has_begun)
			load_session_begin(session, now_ns);
	} else {
		load_session_feed(session, now_ns);
	}
	return (int)load->session_count - 1;
}

int ldma_load_add_session(struct ldma_load *load, const struct ldma_load_session_config *config)
{
	int result;

	load_visit(load);
	result = add_session(load, config);
	load_leave(load);
	load_wake(load);
	return result;
}

void ldma_load_begin(struct ldma_load *load)
{
	load_visit(load);
	if (!load->has_begun) {
		load->has_begun = true;
		load->began_ns = load_now();
		for (uint32_t i = 0; i < load->session_count; i++)
			if (load->sessions[i]->phase == SESSION_READY)
				load_session_begin(load->sessions[i], load->began_ns);
	}
	load_leave(load);
	load_wake(load);
}

void ldma_load_stop(struct ldma_load *load)
{
	load_visit(load);
	load->is_stopping = true;
	for (uint32_t i = 0; i < load->link_count; i++)
		load->links[i]->queue = (struct load_queue){0}; /* waiting slots no longer wait */
	load_leave(load);
	load_wake(load);
}

void ldma_load_end(struct ldma_load *load)
{
	load_visit(load);
	load->is_ended = true;
	load_leave(load);
	load_wake(load);
}

/* Gives the lock to visitors: the thread that runs the load never leaves it for long. */
static void let_in(struct ldma_load *load)
{
	pthread_mutex_unlock(&load->lock);
	while (__atomic_load_n(&load->visitors, __ATOMIC_RELAXED))
		ldma_pause();
}

static uint64_t until(uint64_t at_ns)
{
	uint64_t now_ns = load_now();

	if (at_ns <= now_ns)
		return 0;
	return at_ns - now_ns < SLICE_NS ? at_ns - now_ns : SLICE_NS;
}

void ldma_load_run(struct ldma_load *load)
{
	struct load_tcp_events events = {0};
	bool is_rdma = load->config.port;
	uint64_t next_ns, started_cpu_ns = load_cpu_ns(pthread_self());

	load_visit(load);
	load->thread = pthread_self();
	load->is_running = true;
	load->cpu_ns = started_cpu_ns;
	while (!load->is_ended) {
		uint32_t got = is_rdma ? load_rdma_receive(load) : 0;

		if (!is_rdma)
			load_tcp_receive(load, &events);
		next_ns = load_sessions_tick(load, load_now());
		if (is_rdma)
			load_rdma_send(load);
		else
			load_tcp_send(load);
		let_in(load);
		if (!is_rdma)
			load_tcp_wait(load, until(next_ns), &events);
		else if (!got)
			load_rdma_wait(load, until(next_ns));
		pthread_mutex_lock(&load->lock);
	}
	load->is_running = false;
	load->cpu_ns = load_cpu_ns(pthread_self()) - started_cpu_ns;
	load_leave(load);
	ldma_signal(load->event_fd);
}
