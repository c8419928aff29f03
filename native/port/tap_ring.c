/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/tap_ring.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(offsetof(struct ldma_tap_shared, producer) == 64, "each writer has its cache lines");
_Static_assert(offsetof(struct ldma_tap_shared, counters) == 128,
	       "each writer has its cache lines");

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

int ldma_tap_memory_create(uint64_t ring_bytes)
{
	off_t bytes = (off_t)(page_bytes() + ring_bytes);
	int fd = memfd_create("livedma-tap", MFD_CLOEXEC | MFD_ALLOW_SEALING), error;

	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, bytes) && !fallocate(fd, 0, 0, bytes) && !fcntl(fd, F_ADD_SEALS, SEALS))
		return fd;
	error = -errno;
	close(fd);
	return error;
}

/* Returns whether the memory is a memfd of that size which cannot shrink: touching it cannot fail, however its owner
 * behaves. (Huge pages, of which there may be none left, cannot have that size.) */
static bool is_lasting(int fd, uint64_t bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &file) &&
	       (uint64_t)file.st_size == bytes;
}

int ldma_tap_memory_map(int fd, uint64_t ring_bytes, struct ldma_tap_memory *ret)
{
	size_t page = page_bytes();
	int flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE, rights = PROT_READ | PROT_WRITE, error;
	uint8_t *at;

	if (ring_bytes < page || ring_bytes > LDMA_TAP_RING_MAX || ring_bytes & (ring_bytes - 1) ||
	    !is_lasting(fd, page + ring_bytes))
		return -EINVAL;
	at = mmap(NULL, page + 2 * ring_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	*ret = (struct ldma_tap_memory){(void *)at, at + page, ring_bytes};
	if (mmap(at, page + ring_bytes, rights, flags, fd, 0) == MAP_FAILED ||
	    mmap(at + page + ring_bytes, ring_bytes, rights, flags, fd, (off_t)page) ==
		    MAP_FAILED) {
		error = -errno;
		ldma_tap_memory_unmap(ret);
		return error;
	}
	return 0;
}

void ldma_tap_memory_unmap(struct ldma_tap_memory *memory)
{
	if (memory->shared)
		munmap(memory->shared, page_bytes() + 2 * memory->ring_bytes);
	memory->shared = NULL;
}

socklen_t ldma_tap_name(const struct ldma_address *address, int waiting, struct sockaddr_un *ret)
{
	char text[INET6_ADDRSTRLEN], *name = ret->sun_path + 1;
	size_t room = sizeof(ret->sun_path) - 1;
	int length;

	*ret = (struct sockaddr_un){.sun_family = AF_UNIX};
	inet_ntop(address->ip_version == 4 ? AF_INET : AF_INET6, address->bytes, text,
		  sizeof(text));
	length = snprintf(name, room, "livedma/tap/%s%%%u", text, address->scope);
	if (waiting != LDMA_TAP_DEVICE)
		length += snprintf(name + length, room - (size_t)length, "/waiting%d", waiting);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

uid_t ldma_tap_peer(int fd)
{
	struct ucred peer;
	socklen_t length = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) ? (uid_t)-1 : peer.uid;
}

typedef int (*use_name)(int fd, const struct sockaddr *address, socklen_t length);

/* Returns a socket that is connected or bound to the name, or a negative errno. */
static int open_socket(const struct ldma_address *address, int waiting, use_name use)
{
	struct sockaddr_un name;
	socklen_t length = ldma_tap_name(address, waiting, &name);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

	if (fd < 0)
		return -errno;
	if (!use(fd, (const struct sockaddr *)&name, length))
		return fd;
	error = -errno;
	close(fd);
	return error;
}

int ldma_tap_connect(const struct ldma_address *address, int waiting)
{
	return open_socket(address, waiting, connect);
}

int ldma_tap_listen(const struct ldma_address *address, int waiting)
{
	int fd = open_socket(address, waiting, bind), error;

	if (fd < 0 || !listen(fd, LDMA_TAPS))
		return fd;
	error = -errno;
	close(fd);
	return error;
}
