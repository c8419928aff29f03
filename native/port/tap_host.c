/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/tap_host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "port/port_internal.h"

#define GREET_MS 250 /* the time that a device, as it opens, gives readers that wait for it */

static void reply(int fd, int error)
{
	struct ldma_tap_reply message = {.error = error};

	send(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Returns whether the peer may see packets: only the device's own user and root may. */
static bool is_allowed(int fd)
{
	uid_t peer = ldma_tap_peer(fd);

	return peer == geteuid() || peer == 0;
}

static void drop(struct ldma_tap_host *host, struct ldma_tap_client *client)
{
	if (client->tap) {
		ldma_port_lock(host->port);
		ldma_taps_remove(&host->port->taps, client->tap);
		ldma_port_unlock(host->port);
		ldma_tap_destroy(client->tap);
	}
	if (client->fd >= 0)
		close(client->fd);
	*client = (struct ldma_tap_client){.fd = -1};
}

static void admit(struct ldma_tap_host *host, int fd)
{
	if (!is_allowed(fd)) {
		reply(fd, -EPERM);
		close(fd);
		return;
	}
	for (int i = 0; i < LDMA_TAPS; i++)
		if (host->clients[i].fd < 0) {
			host->clients[i].fd = fd;
			return;
		}
	reply(fd, -EBUSY);
	close(fd);
}

/* Returns the last descriptor of a message, or -1, and closes the others. */
static int take_descriptor(struct msghdr *message)
{
	int taken = -1;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
			if (taken >= 0)
				close(taken);
			memcpy(&taken, (uint8_t *)c + at, sizeof(taken));
		}
	}
	return taken;
}

/* Takes the reader's request and makes its tap. Returns 0; -EAGAIN: the request has not come; or a negative errno that
 * says what is wrong with it. */
static int take_request(int fd, struct ldma_tap **ret)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control;
	struct ldma_tap_request request;
	struct iovec iov = {&request, sizeof(request)};
	struct msghdr message = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int memory_fd, error;

	if (length < 0)
		return -errno;
	memory_fd = take_descriptor(&message);
	if (length != sizeof(request) || message.msg_flags & MSG_TRUNC || memory_fd < 0)
		error = -EPROTO;
	else
		error = ldma_tap_create(&request, memory_fd, fd, ret);
	if (memory_fd >= 0)
		close(memory_fd);
	return error;
}

static void attend(struct ldma_tap_host *host, struct ldma_tap_client *client)
{
	int error;

	if (client->tap) { /* after its request a reader only hangs up */
		drop(host, client);
		return;
	}
	error = take_request(client->fd, &client->tap);
	if (error == -EAGAIN || error == -EINTR)
		return;
	if (!error) {
		ldma_port_lock(host->port);
		ldma_taps_add(&host->port->taps, client->tap);
		ldma_port_unlock(host->port);
	}
	reply(client->fd, error);
	if (error)
		drop(host, client);
}

/* Waits for something to do, and does it. Returns false when it is time to stop. */
static bool look_around(struct ldma_tap_host *host, int timeout_ms)
{
	struct pollfd fds[2 + LDMA_TAPS] = {
		{.fd = host->stop_fd, .events = POLLIN},
		{.fd = host->listen_fd, .events = POLLIN},
	};

	for (int i = 0; i < LDMA_TAPS; i++)
		fds[2 + i] = (struct pollfd){.fd = host->clients[i].fd, .events = POLLIN};
	if (poll(fds, 2 + LDMA_TAPS, timeout_ms) <= 0)
		return true;
	for (int i = 0; i < LDMA_TAPS; i++)
		if (fds[2 + i].revents)
			attend(host, &host->clients[i]);
	if (fds[1].revents) {
		int fd = accept4(host->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			admit(host, fd);
		else if (errno == EMFILE || errno == ENFILE)
			poll(fds, 1, 100); /* until there are descriptors again */
	}
	return !fds[0].revents;
}

static bool has_newcomer(const struct ldma_tap_host *host)
{
	struct pollfd caller = {.fd = host->listen_fd, .events = POLLIN};

	for (int i = 0; i < LDMA_TAPS; i++)
		if (host->clients[i].fd >= 0 && !host->clients[i].tap)
			return true;
	return poll(&caller, 1, 0) > 0;
}

/* Connects to the readers that wait and lets them in before the first packet. A reader that was about to connect by
 * itself hangs up on this connection, and comes through the listening socket. */
static void greet(struct ldma_tap_host *host)
{
	uint64_t end_ns = ldma_port_now() + GREET_MS * UINT64_C(1000000);

	for (int i = 0; i < LDMA_TAPS; i++) {
		int fd = ldma_tap_connect(&host->port->socket.local, i);

		if (fd >= 0 && is_allowed(fd))
			admit(host, fd);
		else if (fd >= 0)
			close(fd);
	}
	while (has_newcomer(host) && ldma_port_now() < end_ns)
		look_around(host, 10);
}

static void *run(void *arg)
{
	struct ldma_tap_host *host = arg;

	while (look_around(host, -1))
		;
	return NULL;
}

/* Starts the thread with all signals blocked: they are for the threads of the program. */
static int start_thread(struct ldma_tap_host *host)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	error = -pthread_create(&host->thread, NULL, run, host);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static void close_all(struct ldma_tap_host *host)
{
	for (int i = 0; i < LDMA_TAPS; i++)
		drop(host, &host->clients[i]);
	if (host->listen_fd >= 0)
		close(host->listen_fd);
	close(host->stop_fd);
}

int ldma_tap_host_start(struct ldma_tap_host *host, struct ldma_port *port)
{
	int error;

	*host = (struct ldma_tap_host){.port = port};
	for (int i = 0; i < LDMA_TAPS; i++)
		host->clients[i].fd = -1;
	host->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (host->stop_fd < 0)
		return -errno;
	host->listen_fd = ldma_tap_listen(&port->socket.local, LDMA_TAP_DEVICE);
	greet(host);
	error = start_thread(host);
	if (error)
		close_all(host);
	return error;
}

void ldma_tap_host_stop(struct ldma_tap_host *host)
{
	uint64_t one = 1;

	while (write(host->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(host->thread, NULL);
	close_all(host);
}
