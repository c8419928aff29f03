/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/share_session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bpf/libbpf_words.h"
#include "steer.skel.h"

enum { CLAIMS, LIVING, SOCKETS, MAP_COUNT };

/* The pins, in the order of pinning. */
static const char *const pins[MAP_COUNT] = {"claims", "living", LDMA_SHARE_SOCKETS};

struct share_session {
	int maps[MAP_COUNT];
	uint32_t address, interface;
	int slot;        /* -1: none */
	uint64_t cookie; /* of the socket in it */
};

static int pin_path(const char *directory, const char *name, char *buf, size_t size)
{
	int length = snprintf(buf, size, "%s/%s", directory, name);

	return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

static struct share_session *create(uint32_t address, uint32_t interface)
{
	struct share_session *session = malloc(sizeof(*session));

	if (!session)
		return NULL;
	*session = (struct share_session){
		.maps = {-1, -1, -1}, .address = address, .interface = interface, .slot = -1};
	return session;
}

static int open_maps(struct share_session *session, const char *directory)
{
	char path[512];

	for (int i = MAP_COUNT - 1; i >= 0; i--) {
		int err = pin_path(directory, pins[i], path, sizeof(path));

		if (err)
			return err;
		session->maps[i] = bpf_obj_get(path);
		if (session->maps[i] < 0)
			return session->maps[i];
	}
	return 0;
}

int share_open(const char *directory, uint32_t address, uint32_t interface,
	       struct share_session **ret)
{
	struct share_session *session = create(address, interface);
	int err;

	if (!session)
		return -ENOMEM;
	err = open_maps(session, directory);
	if (err) {
		share_close(session);
		return err;
	}
	*ret = session;
	return 0;
}

static struct bpf_map *map_of(struct steer_bpf *bpf, int i)
{
	return i == CLAIMS ? bpf->maps.claims : i == LIVING ? bpf->maps.living : bpf->maps.sockets;
}

int share_start(const char *directory, uint32_t address, uint32_t interface,
		struct share_session **ret)
{
	struct steer_bpf *bpf;
	char path[512];
	int err;

	libbpf_words(false);
	bpf = steer_bpf__open();
	if (!bpf)
		return -errno;
	bpf_program__set_autoload(bpf->progs.steer_udp, false); /* each process loads its own */
	bpf_program__set_autoload(bpf->progs.steer_packets, false);
	err = steer_bpf__load(bpf);
	for (int i = 0; i < MAP_COUNT && !err; i++) {
		err = pin_path(directory, pins[i], path, sizeof(path));
		if (!err)
			err = bpf_obj_pin(bpf_map__fd(map_of(bpf, i)), path);
	}
	steer_bpf__destroy(bpf);
	return err ? err : share_open(directory, address, interface, ret);
}

void share_close(struct share_session *session)
{
	if (!session)
		return;
	for (int i = 0; i < MAP_COUNT; i++)
		if (session->maps[i] >= 0)
			close(session->maps[i]);
	free(session);
}

static bool is_living(const struct share_session *session, uint32_t slot)
{
	uint64_t cookie;

	return !bpf_map_lookup_elem(session->maps[SOCKETS], &slot, &cookie);
}

uint32_t share_count(const struct share_session *session)
{
	uint32_t count = 0;

	for (uint32_t slot = 0; slot < LDMA_STEER_SLOTS; slot++)
		count += is_living(session, slot);
	return count;
}

static void remove_claims(struct share_session *session)
{
	uint32_t key, next, slot;
	int err = bpf_map_get_next_key(session->maps[CLAIMS], NULL, &next);

	while (!err) {
		key = next;
		err = bpf_map_get_next_key(session->maps[CLAIMS], &key, &next);
		if (!bpf_map_lookup_elem(session->maps[CLAIMS], &key, &slot) &&
		    slot == (uint32_t)session->slot)
			bpf_map_delete_elem(session->maps[CLAIMS], &key);
	}
}

static int take_slot(struct share_session *session, int socket_fd)
{
	uint64_t fd = (uint64_t)socket_fd;
	socklen_t size = sizeof(session->cookie);

	if (getsockopt(socket_fd, SOL_SOCKET, SO_COOKIE, &session->cookie, &size))
		return -errno;
	for (uint32_t slot = 0; slot < LDMA_STEER_SLOTS; slot++) {
		int err = bpf_map_update_elem(session->maps[SOCKETS], &slot, &fd, BPF_NOEXIST);

		if (!err)
			session->slot = (int)slot;
		if (err != -EEXIST)
			return err;
	}
	return -EUSERS;
}

/* Loads both programs, with the shared maps and the process's own slot. */
static int load(struct share_session *session, struct steer_bpf *bpf)
{
	bpf->rodata->own_slot = (uint32_t)session->slot;
	bpf->rodata->own_address = session->address;
	bpf->rodata->own_interface = session->interface;
	for (int i = 0; i < MAP_COUNT; i++) {
		int err = bpf_map__reuse_fd(map_of(bpf, i), session->maps[i]);

		if (err)
			return err;
	}
	return steer_bpf__load(bpf);
}

/* Puts the process's own copy of the program in the place of the one before, which does the same: so no process depends
 * on another. */
static int steer(struct share_session *session, int socket_fd, int *ret_filter)
{
	struct steer_bpf *bpf = steer_bpf__open();
	int err, program;

	if (!bpf)
		return -errno;
	err = load(session, bpf);
	program = bpf_program__fd(bpf->progs.steer_udp);
	if (!err &&
	    setsockopt(socket_fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &program, sizeof(program)))
		err = -errno;
	if (!err) {
		*ret_filter = fcntl(bpf_program__fd(bpf->progs.steer_packets), F_DUPFD_CLOEXEC, 0);
		err = *ret_filter < 0 ? -errno : 0;
	}
	steer_bpf__destroy(bpf);
	return err;
}

int share_join(void *arg, int socket_fd, int *ret_filter)
{
	struct share_session *session = arg;
	uint32_t yes = 1, slot;
	int err;

	libbpf_words(false);
	err = take_slot(session, socket_fd);
	if (err)
		return err;
	remove_claims(session); /* those that the slot's last process could not remove */
	err = steer(session, socket_fd, ret_filter);
	slot = (uint32_t)session->slot;
	if (!err)
		err = bpf_map_update_elem(session->maps[LIVING], &slot, &yes, BPF_ANY);
	if (err) {
		share_leave(session);
		return err;
	}
	return (int)slot;
}

int share_claim(struct share_session *session, uint32_t service)
{
	uint32_t own = (uint32_t)session->slot, slot;
	int err = bpf_map_update_elem(session->maps[CLAIMS], &service, &own, BPF_NOEXIST);

	if (err != -EEXIST)
		return err;
	err = bpf_map_lookup_elem(session->maps[CLAIMS], &service, &slot);
	if (!err && slot != own && is_living(session, slot))
		return -EADDRINUSE;
	return bpf_map_update_elem(session->maps[CLAIMS], &service, &own, BPF_ANY);
}

int share_release(struct share_session *session, uint32_t service)
{
	uint32_t slot;

	if (bpf_map_lookup_elem(session->maps[CLAIMS], &service, &slot) ||
	    slot != (uint32_t)session->slot)
		return 0;
	return bpf_map_delete_elem(session->maps[CLAIMS], &service);
}

void share_leave(struct share_session *session)
{
	uint32_t slot = (uint32_t)session->slot, no = 0;
	uint64_t cookie;
	int err;

	if (session->slot < 0)
		return;
	err = bpf_map_lookup_elem(session->maps[SOCKETS], &slot, &cookie);
	if (!err && cookie != session->cookie)
		return; /* the socket was closed and another took its place */
	remove_claims(session);
	bpf_map_update_elem(session->maps[LIVING], &slot, &no, BPF_ANY);
	bpf_map_delete_elem(session->maps[SOCKETS], &slot);
	session->slot = -1;
}
