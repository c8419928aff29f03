/* SPDX-License-Identifier: BSD-2-Clause */
#include "memory/pin.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SLOTS 4096 /* in a ring; the kernel keeps a pointer for each */

struct ldma_pin_ring {
	struct ldma_pin_ring *next;
	int fd; /* -1: the ring belongs to a parent */
	uint32_t free_count;
	uint16_t free[SLOTS];
};

/* Guards the rings' list and their free slots; not held while the kernel pins. fork holds it, too, so that no child
 * inherits a ring that is not in the list. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ldma_pin_ring *rings;
static pthread_once_t at_fork = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

/* Closes the rings but keeps their memory: the child may still hold pins of its parent, whose removal has no effect. */
static void after_fork_in_child(void)
{
	struct ldma_pin_ring *ring;

	for (ring = rings; ring; ring = ring->next) {
		close(ring->fd);
		ring->fd = -1;
	}
	rings = NULL;
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static int ring_register(int fd, unsigned int what, const void *arg, unsigned int bytes)
{
	return (int)syscall(SYS_io_uring_register, fd, what, arg, bytes);
}

/* Replaces what is in a slot; empties it if memory is NULL. */
static int update(int fd, uint32_t slot, void *memory, size_t length)
{
	struct iovec buffer = {memory, length};
	struct io_uring_rsrc_update2 change = {
		.offset = slot, .data = (uint64_t)(uintptr_t)&buffer, .nr = 1};

	return ring_register(fd, IORING_REGISTER_BUFFERS_UPDATE, &change, sizeof(change)) < 0
		       ? -errno
		       : 0;
}

static int ring_open(struct ldma_pin_ring **ret)
{
	struct io_uring_rsrc_register table = {.nr = SLOTS, .flags = IORING_RSRC_REGISTER_SPARSE};
	struct io_uring_params params = {0};
	struct ldma_pin_ring *ring = malloc(sizeof(*ring));
	int error;

	if (!ring)
		return -ENOMEM;
	ring->fd = (int)syscall(SYS_io_uring_setup, 1, &params); /* closed by exec */
	if (ring->fd < 0 ||
	    ring_register(ring->fd, IORING_REGISTER_BUFFERS2, &table, sizeof(table)) < 0) {
		error = -errno;
		if (ring->fd >= 0)
			close(ring->fd);
		free(ring);
		return error;
	}
	for (ring->free_count = 0; ring->free_count < SLOTS; ring->free_count++)
		ring->free[ring->free_count] = (uint16_t)(SLOTS - 1 - ring->free_count);
	*ret = ring;
	return 0;
}

static int take_slot(struct ldma_pin *ret)
{
	struct ldma_pin_ring *ring;
	int error = 0;

	pthread_once(&at_fork, watch_forks);
	pthread_mutex_lock(&lock);
	for (ring = rings; ring && !ring->free_count; ring = ring->next)
		;
	if (!ring) {
		error = ring_open(&ring);
		if (!error) {
			ring->next = rings;
			rings = ring;
		}
	}
	if (!error)
		*ret = (struct ldma_pin){ring, ring->free[--ring->free_count]};
	pthread_mutex_unlock(&lock);
	return error;
}

static void return_slot(const struct ldma_pin *pin)
{
	pthread_mutex_lock(&lock);
	pin->ring->free[pin->ring->free_count++] = (uint16_t)pin->slot;
	pthread_mutex_unlock(&lock);
}

int ldma_pin_add(void *memory, size_t length, struct ldma_pin *ret)
{
	struct ldma_pin pin;
	int error = take_slot(&pin);

	if (error)
		return error;
	error = update(pin.ring->fd, pin.slot, memory, length);
	if (error)
		return_slot(&pin);
	else
		*ret = pin;
	return error;
}

void ldma_pin_remove(struct ldma_pin *pin)
{
	if (pin->ring && pin->ring->fd >= 0) {
		update(pin->ring->fd, pin->slot, NULL, 0);
		return_slot(pin);
	}
	pin->ring = NULL;
}
