/* SPDX-License-Identifier: BSD-2-Clause */
#include "rpc/server.h"

#include <errno.h>
#include <stdlib.h>

#include "rpc/endpoint_internal.h"

#define BATCH 64                    /* completions handled in a row */
#define BATCHES 16                  /* and batches, before the rest is looked at */
#define TRAIN_BYTES (64 << 10)      /* so much data is posted once a call has been handled, */
#define JOINED_BYTES (256 << 10)    /* and so much at once, since the peer may be idle meanwhile */
#define SLICE_NS UINT64_C(50000000) /* the interval at which the thread looks for other work */

/* Posts what a batch has led to so far, under one lock. Then it breaks the endpoints that failed, which post by
 * themselves. */
static void post_all(struct ldma_rpc_batch *batch, uint64_t now)
{
	struct ldma_service *service = batch->service;
	struct ldma_endpoint *endpoint, *broken = NULL;

	if (!batch->dirty)
		return;
	batch->unposted_bytes = 0;
	ldma_port_lock(service->config.port);
	while ((endpoint = batch->dirty)) {
		batch->dirty = endpoint->next_dirty;
		endpoint->is_dirty = false;
		if (!outbox_post(endpoint, now)) {
			endpoint->next_dirty = broken;
			broken = endpoint;
		}
	}
	ldma_port_unlock(service->config.port);
	__atomic_add_fetch(&service->stats.locks, 1, __ATOMIC_RELAXED);
	while ((endpoint = broken)) {
		broken = endpoint->next_dirty;
		endpoint_break(endpoint, NULL);
	}
}

void batch_add(struct ldma_rpc_batch *batch, struct ldma_endpoint *endpoint, uint32_t data_bytes)
{
	if (!endpoint->is_dirty) {
		endpoint->is_dirty = true;
		endpoint->next_dirty = batch->dirty;
		batch->dirty = endpoint;
	}
	batch->unposted_bytes += data_bytes;
	if (batch->unposted_bytes >= JOINED_BYTES)
		post_all(batch, ldma_now_ns());
}

static uint32_t handle_batch(struct ldma_service *service)
{
	struct ldma_wc wcs[BATCH];
	uint32_t count = ldma_cq_poll(service->config.cq, wcs, BATCH);
	struct ldma_rpc_batch batch = {.service = service, .now_ns = ldma_now_ns()};

	for (uint32_t i = 0; i < count; i++) {
		endpoint_complete(&wcs[i], &batch);
		if (batch.unposted_bytes >= TRAIN_BYTES)
			post_all(&batch, ldma_now_ns());
	}
	post_all(&batch, ldma_now_ns());
	__atomic_add_fetch(&service->stats.batches, count > 0, __ATOMIC_RELAXED);
	__atomic_add_fetch(&service->stats.completions, count, __ATOMIC_RELAXED);
	return count;
}

/* Takes from the list an endpoint that broke and all of whose completions were handled. */
static struct ldma_endpoint *take_drained(struct ldma_service *service)
{
	uint32_t head = service->config.cq->head;
	struct ldma_endpoint **at = &service->endpoints, *found = NULL;

	pthread_mutex_lock(&service->mutex);
	for (; *at && !found; at = &(*at)->next) {
		struct ldma_endpoint *endpoint = *at;

		if (!endpoint->is_breaking || (int32_t)(head - endpoint->drained_at) < 0)
			continue;
		found = endpoint;
		*at = endpoint->next;
		service->breaking--;
		service->completions -= endpoint->config.completions;
		break;
	}
	pthread_mutex_unlock(&service->mutex);
	return found;
}

static void end_drained(struct ldma_service *service)
{
	struct ldma_endpoint *endpoint;

	while (__atomic_load_n(&service->breaking, __ATOMIC_RELAXED) &&
	       (endpoint = take_drained(service))) {
		endpoint_drained(endpoint);
		ldma_endpoint_put(endpoint);
	}
}

static bool is_stalled(struct ldma_endpoint *endpoint, uint64_t now)
{
	const struct call *oldest;
	bool is_stalled;

	ldma_lock(&endpoint->lock);
	oldest = endpoint->sending.first;
	is_stalled = !endpoint->is_broken && oldest && endpoint->config.stall_ns &&
		     now > oldest->sent_ns && now - oldest->sent_ns > endpoint->config.stall_ns;
	endpoint->stats.errors.stalled += is_stalled;
	ldma_unlock(&endpoint->lock);
	return is_stalled;
}

static struct ldma_endpoint *find_stalled(struct ldma_service *service, uint64_t now)
{
	struct ldma_endpoint *endpoint;

	pthread_mutex_lock(&service->mutex);
	endpoint = service->endpoints;
	while (endpoint && !is_stalled(endpoint, now))
		endpoint = endpoint->next;
	pthread_mutex_unlock(&service->mutex);
	return endpoint;
}

/* Breaks the endpoints that stalled. Only this thread removes endpoints, so one that was found stays. */
static void end_stalled(struct ldma_service *service)
{
	uint64_t now = ldma_now_ns();
	struct ldma_endpoint *endpoint;

	if (now - service->looked_ns < SLICE_NS)
		return;
	service->looked_ns = now;
	while ((endpoint = find_stalled(service, now)))
		endpoint_break(endpoint, NULL);
}

static void *run(void *arg)
{
	struct ldma_service *service = arg;
	const struct ldma_service_config *config = &service->config;

	while (!__atomic_load_n(&service->is_stopping, __ATOMIC_ACQUIRE)) {
		uint64_t begun_ns;

		ldma_port_wait(config->port, config->cq, config->spin_ns, SLICE_NS);
		begun_ns = ldma_now_ns();
		__atomic_add_fetch(&service->stats.wakes, 1, __ATOMIC_RELAXED);
		for (int i = 0; i < BATCHES && handle_batch(service) == BATCH; i++)
			;
		end_drained(service);
		end_stalled(service);
		__atomic_add_fetch(&service->stats.busy_ns, ldma_now_ns() - begun_ns,
				   __ATOMIC_RELAXED);
	}
	return NULL;
}

static void init_condition(pthread_cond_t *condition)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &attr);
	pthread_condattr_destroy(&attr);
}

int ldma_service_create(const struct ldma_service_config *config, struct ldma_service **ret)
{
	struct ldma_service *service = calloc(1, sizeof(*service));
	int error;

	if (!service)
		return -ENOMEM;
	service->config = *config;
	pthread_mutex_init(&service->mutex, NULL);
	init_condition(&service->has_call);
	init_condition(&service->has_control);
	init_condition(&service->has_ended);
	error = pthread_create(&service->thread, NULL, run, service);
	if (error) {
		service->is_stopping = true;
		free(service);
		return -error;
	}
	*ret = service;
	return 0;
}

void ldma_service_stop(struct ldma_service *service)
{
	bool was_stopping;

	pthread_mutex_lock(&service->mutex);
	was_stopping = service->is_stopping;
	__atomic_store_n(&service->is_stopping, true, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&service->has_call);
	pthread_cond_broadcast(&service->has_control);
	pthread_cond_broadcast(&service->has_ended);
	pthread_mutex_unlock(&service->mutex);
	if (!was_stopping)
		pthread_join(service->thread, NULL);
}

void ldma_service_destroy(struct ldma_service *service)
{
	if (!service)
		return;
	ldma_service_stop(service);
	pthread_cond_destroy(&service->has_call);
	pthread_cond_destroy(&service->has_control);
	pthread_cond_destroy(&service->has_ended);
	pthread_mutex_destroy(&service->mutex);
	free(service);
}

bool ldma_service_is_stopped(struct ldma_service *service)
{
	return __atomic_load_n(&service->is_stopping, __ATOMIC_ACQUIRE);
}

void ldma_service_set_program(struct ldma_service *service, struct ldma_program *program)
{
	__atomic_store_n(&service->program, program, __ATOMIC_RELEASE);
}

struct ldma_service_stats ldma_service_stats(struct ldma_service *service)
{
	return (struct ldma_service_stats){
		.wakes = __atomic_load_n(&service->stats.wakes, __ATOMIC_RELAXED),
		.batches = __atomic_load_n(&service->stats.batches, __ATOMIC_RELAXED),
		.completions = __atomic_load_n(&service->stats.completions, __ATOMIC_RELAXED),
		.locks = __atomic_load_n(&service->stats.locks, __ATOMIC_RELAXED),
		.busy_ns = __atomic_load_n(&service->stats.busy_ns, __ATOMIC_RELAXED),
	};
}

int service_add(struct ldma_service *service, struct ldma_endpoint *endpoint)
{
	uint32_t wanted = endpoint->config.completions;
	int error = 0;

	pthread_mutex_lock(&service->mutex);
	if (service->is_stopping)
		error = -ESHUTDOWN;
	else if (wanted > service->config.completions - service->completions)
		error = -ENOSPC;
	if (!error) {
		service->completions += wanted;
		endpoint->next = service->endpoints;
		service->endpoints = endpoint;
	}
	pthread_mutex_unlock(&service->mutex);
	return error;
}

void service_breaks(struct ldma_service *service, struct ldma_endpoint *endpoint,
		    uint32_t drained_at)
{
	pthread_mutex_lock(&service->mutex);
	endpoint->is_breaking = true;
	endpoint->drained_at = drained_at;
	__atomic_add_fetch(&service->breaking, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&service->mutex);
}

void service_ended(struct ldma_service *service, struct ldma_endpoint *endpoint)
{
	pthread_mutex_lock(&service->mutex);
	endpoint->next_ended = NULL;
	if (service->first_ended)
		service->last_ended->next_ended = endpoint;
	else
		service->first_ended = endpoint;
	service->last_ended = endpoint;
	pthread_cond_signal(&service->has_ended);
	pthread_mutex_unlock(&service->mutex);
}

static bool is_control(struct ldma_service *service, const struct call *call)
{
	const struct ldma_program *program = __atomic_load_n(&service->program, __ATOMIC_ACQUIRE);
	const uint8_t *message;
	uint64_t length;

	if (!service->config.has_reserve || !program || !program->is_control)
		return false;
	message = ldma_call_message(&call->shown, &length);
	return program->is_control(message, length);
}

void service_queue(struct ldma_service *service, struct call *call)
{
	enum slow_lane lane = is_control(service, call) ? SLOW_CONTROL : SLOW_PLAIN;

	pthread_mutex_lock(&service->mutex);
	slow_queue_add(&service->slow, call, lane);
	pthread_cond_signal(&service->has_call);
	if (lane == SLOW_CONTROL)
		pthread_cond_signal(&service->has_control);
	pthread_mutex_unlock(&service->mutex);
}

/* Waits for the condition; the caller has the mutex. Returns false if time is up, or the service has stopped. */
static bool wait_for(struct ldma_service *service, pthread_cond_t *condition, uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
				 .tv_nsec = (long)(until_ns % 1000000000)};

	return !service->is_stopping &&
	       pthread_cond_timedwait(condition, &service->mutex, &until) != ETIMEDOUT;
}

static uint64_t deadline(uint64_t timeout_ns)
{
	const uint64_t most = UINT64_C(1000000000) * 3600;

	return ldma_now_ns() + (timeout_ns < most ? timeout_ns : most);
}

struct ldma_call *ldma_service_next_call(struct ldma_service *service, uint64_t timeout_ns,
					 bool only_control)
{
	pthread_cond_t *condition = only_control ? &service->has_control : &service->has_call;
	uint64_t until_ns = deadline(timeout_ns);
	struct call *call;

	pthread_mutex_lock(&service->mutex);
	while (!slow_queue_has(&service->slow, only_control) &&
	       wait_for(service, condition, until_ns))
		;
	call = slow_queue_take(&service->slow, only_control);
	pthread_mutex_unlock(&service->mutex);
	return call ? &call->shown : NULL;
}

struct ldma_endpoint *ldma_service_next_ended(struct ldma_service *service, uint64_t timeout_ns)
{
	uint64_t until_ns = deadline(timeout_ns);
	struct ldma_endpoint *endpoint;

	pthread_mutex_lock(&service->mutex);
	while (!service->first_ended && wait_for(service, &service->has_ended, until_ns))
		;
	endpoint = service->first_ended;
	if (endpoint)
		service->first_ended = endpoint->next_ended;
	pthread_mutex_unlock(&service->mutex);
	return endpoint;
}
