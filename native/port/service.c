/* SPDX-License-Identifier: BSD-2-Clause */
/* Serves a port by the threads that wait for its completions, else by its own thread. */
#include <errno.h>
#include <poll.h>

#include "base/wake.h"
#include "port/port_internal.h"

#define RX_TRAINS 8      /* received in a row, before answers go out */
#define SERVED_NS 200000 /* a user that served the port this recently is expected to come back */

/* Serves one batch. The caller owns the device. */
static bool serve(struct ldma_port *port, const struct ldma_cq *cq, uint32_t trains,
		  uint64_t now_ns, bool is_last)
{
	bool has_worked = ldma_port_progress(port, cq, trains, now_ns, is_last);

	ldma_port_publish(port, now_ns);
	return has_worked;
}

static bool serve_for(struct ldma_port *port, const struct ldma_cq *cq, uint32_t trains,
		      uint64_t now_ns)
{
	bool has_worked;

	/* Not a trylock in a loop: the owner may wait for this very processor. */
	ldma_port_lock(port);
	has_worked = serve(port, cq, trains, now_ns, false);
	pthread_mutex_unlock(&port->owner);
	return has_worked;
}

static void count_busy(struct ldma_port *port, uint64_t busy_ns)
{
	__atomic_add_fetch(&port->busy_ns, busy_ns, __ATOMIC_RELAXED);
}

/* Makes the port's thread stand aside from here on. */
static void begin_serving(struct ldma_port *port)
{
	__atomic_add_fetch(&port->servers, 1, __ATOMIC_RELAXED);
}

/* Ends a user's service. The port's thread stands aside a while longer: the user is likely to come back. */
static void end_serving(struct ldma_port *port, uint64_t now_ns)
{
	__atomic_store_n(&port->served_ns, now_ns, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&port->servers, 1, __ATOMIC_RELAXED);
}

/* Lets the port's thread take over at once, unless other users serve. */
static void hand_over(struct ldma_port *port)
{
	__atomic_store_n(&port->served_ns, 0, __ATOMIC_RELAXED);
	if (!__atomic_sub_fetch(&port->servers, 1, __ATOMIC_RELAXED))
		ldma_signal(port->wake_fd);
}

static bool is_served(const struct ldma_port *port, uint64_t now_ns)
{
	uint64_t served_ns = __atomic_load_n(&port->served_ns, __ATOMIC_RELAXED);

	return __atomic_load_n(&port->servers, __ATOMIC_RELAXED) || now_ns < served_ns + SERVED_NS;
}

void ldma_port_serve(struct ldma_port *port)
{
	uint64_t now_ns = ldma_port_now();

	begin_serving(port);
	serve_for(port, NULL, 1, now_ns);
	end_serving(port, now_ns);
}

/* Sleeps until the queue's event. */
static int sleep_at(struct ldma_port *port, struct ldma_cq *cq, uint64_t timeout_ns)
{
	uint32_t events;
	int result = 0;

	ldma_port_lock(port);
	ldma_cq_arm(cq, LDMA_CQ_ARMED_ANY);
	__atomic_add_fetch(&cq->sleepers, 1, __ATOMIC_SEQ_CST);
	events = __atomic_load_n(&cq->events, __ATOMIC_SEQ_CST);
	ldma_port_unlock(port);
	if (ldma_cq_is_empty(cq))
		result = ldma_futex_wait(&cq->events, events, timeout_ns);
	__atomic_sub_fetch(&cq->sleepers, 1, __ATOMIC_SEQ_CST);
	return result;
}

/* Serves the port until the queue has something or look_ns have passed. Returns how long it took. */
static uint64_t look(struct ldma_port *port, struct ldma_cq *cq, uint64_t look_ns)
{
	uint64_t start_ns = ldma_port_now(), now_ns = start_ns;

	begin_serving(port);
	while (ldma_cq_is_empty(cq) && now_ns - start_ns < look_ns) {
		bool has_worked = serve_for(port, cq, RX_TRAINS, now_ns);
		uint64_t before_ns = now_ns;

		now_ns = ldma_port_now();
		if (has_worked)
			count_busy(port, now_ns - before_ns);
	}
	if (ldma_cq_is_empty(cq))
		hand_over(port);
	else
		end_serving(port, now_ns);
	return now_ns - start_ns;
}

int ldma_port_wait(struct ldma_port *port, struct ldma_cq *cq, uint64_t spin_ns,
		   uint64_t timeout_ns)
{
	uint64_t look_ns = ldma_spin_ns(&port->user_spin, spin_ns), elapsed_ns = 0, start_ns;

	if (!ldma_cq_is_empty(cq))
		return 1;
	if (look_ns) {
		elapsed_ns = look(port, cq, look_ns < timeout_ns ? look_ns : timeout_ns);
		if (!ldma_cq_is_empty(cq)) {
			ldma_spin_won(&port->user_spin, elapsed_ns, spin_ns);
			return 1;
		}
		ldma_spin_lost(&port->user_spin, spin_ns);
	}
	start_ns = ldma_port_now() - elapsed_ns;
	while (ldma_cq_is_empty(cq)) {
		elapsed_ns = ldma_port_now() - start_ns;
		if (elapsed_ns >= timeout_ns)
			return 0;
		if (sleep_at(port, cq, timeout_ns - elapsed_ns))
			return -EINTR;
	}
	return 1;
}

/* Sleeps until something comes: a packet, room to send, a deadline, or a call to wake up. aside: leaves all but the
 * last to the users that serve the port now. */
static void block(struct ldma_port *port, bool aside, bool is_tx_blocked)
{
	struct pollfd fds[] = {
		{.fd = port->wake_fd, .events = POLLIN},
		{.fd = aside ? -1 : port->timer_fd, .events = POLLIN},
		{.fd = aside ? -1 : port->socket.fd, .events = POLLIN},
		{.fd = aside ? -1 : port->packet_fd, .events = POLLIN},
	};
	struct timespec timeout = ldma_timespec(ASIDE_NS);

	if (is_tx_blocked)
		fds[2].events |= POLLOUT;
	ppoll(fds, 4, aside ? &timeout : NULL, NULL);
	if (fds[0].revents)
		ldma_unsignal(port->wake_fd);
	if (fds[1].revents) {
		ldma_port_lock(port);
		ldma_unsignal(port->timer_fd);
		port->timer_ns = LDMA_NEVER;
		pthread_mutex_unlock(&port->owner);
	}
}

void *ldma_port_run(void *arg)
{
	struct ldma_port *port = arg;
	struct ldma_spin spin = {0};
	uint64_t worked_ns = 0;

	while (!__atomic_load_n(&port->is_stopping, __ATOMIC_RELAXED)) {
		uint64_t now_ns = ldma_port_now();
		bool is_idle = now_ns - worked_ns >= ldma_spin_ns(&spin, port->spin_ns);
		bool has_worked, is_tx_blocked;

		if (is_served(port, now_ns)) {
			block(port, true, false);
			continue;
		}
		ldma_port_lock(port);
		has_worked = serve(port, NULL, RX_TRAINS, now_ns, is_idle);
		is_tx_blocked = port->is_tx_blocked;
		port->counters.sleeps += !has_worked && is_idle;
		pthread_mutex_unlock(&port->owner);
		if (has_worked) {
			ldma_spin_won(&spin, now_ns - worked_ns, port->spin_ns);
			worked_ns = now_ns;
			count_busy(port, ldma_port_now() - now_ns);
		} else if (is_idle) {
			ldma_spin_lost(&spin, port->spin_ns);
			block(port, false, is_tx_blocked);
			worked_ns = ldma_port_now(); /* looks again, perhaps in vain */
		}
	}
	return NULL;
}
