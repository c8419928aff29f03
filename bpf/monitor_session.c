/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/monitor_session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/libbpf_words.h"
#include "bpf/monitor_internal.h"
#include "bpf/wall_clock.h"
#include "monitor.skel.h"

#define FED_BYTES 2048 /* of a frame: more than is read, and no more than the kernel takes */

static int load_failed(struct capture_error *error, int err)
{
	switch (err) {
	case -EPERM:
	case -EACCES:
		return capture_fail(error, err,
				    geteuid() ? "monitoring needs root (CAP_BPF, CAP_NET_ADMIN, "
						"CAP_PERFMON): run it with sudo"
					      : "this machine does not let root load BPF programs "
						"(a container without CAP_BPF, or a locked-down "
						"kernel), or its verifier refused them");
	case -ENOSYS:
		return capture_fail(error, err,
				    "this kernel has no BPF: boot one with CONFIG_BPF_SYSCALL");
	case -ENOMEM:
		return capture_fail(error, err,
				    "no memory for the monitor's tables: ask for room for fewer "
				    "connections or sessions");
	}
	return capture_fail(error, err, "the monitor's BPF programs cannot be loaded: %s",
			    strerror(-err));
}

static int set_sizes(struct monitor_bpf *bpf, const struct monitor_options *options)
{
	const struct {
		struct bpf_map *map;
		uint32_t entries;
	} sizes[] = {
		{bpf->maps.connections, options->connections},
		{bpf->maps.free_connections, options->connections},
		{bpf->maps.calls, options->connections * LDMA_MONITOR_BLOCKS},
		{bpf->maps.sessions, options->sessions},
		{bpf->maps.free_sessions, options->sessions},
		{bpf->maps.sessions_by_id, options->sessions},
	};
	int err = 0;

	for (size_t i = 0; !err && i < sizeof(sizes) / sizeof(*sizes); i++)
		err = bpf_map__set_max_entries(sizes[i].map, sizes[i].entries);
	return err;
}

static size_t mapped_bytes(const struct bpf_map *map)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = (size_t)bpf_map__value_size(map) * bpf_map__max_entries(map);

	return (bytes + page - 1) / page * page;
}

static int map_table(const struct bpf_map *map, void **ret)
{
	void *found = mmap(NULL, mapped_bytes(map), PROT_READ | PROT_WRITE, MAP_SHARED,
			   bpf_map__fd(map), 0);

	if (found == MAP_FAILED)
		return -errno;
	*ret = found;
	return 0;
}

static void unmap_table(const struct bpf_map *map, void *table)
{
	if (table)
		munmap(table, mapped_bytes(map));
}

/* Fills a stack of free places from the highest on, so that low ones are used first and looks stay short. */
static int fill(const struct bpf_map *stack, uint32_t count)
{
	int err = 0;

	while (!err && count--)
		err = bpf_map_update_elem(bpf_map__fd(stack), NULL, &count, 0);
	return err;
}

static int load(struct monitor *monitor, struct capture_error *error)
{
	const struct monitor_options *options = &monitor->options;
	struct monitor_bpf *bpf;
	int err;

	libbpf_words(options->verbose);
	monitor->bpf = bpf = monitor_bpf__open();
	if (!bpf)
		return load_failed(error, -errno);
	memcpy((void *)(uintptr_t)bpf->rodata->ports, options->ports, sizeof(options->ports));
	*(uint32_t *)(uintptr_t)&bpf->rodata->port_count = options->port_count;
	*(__u64 *)(uintptr_t)&bpf->rodata->patience_ns = options->patience_ns;
	*(bool *)(uintptr_t)&bpf->rodata->learns = options->learns;
	err = set_sizes(bpf, options);
	if (!err)
		err = monitor_bpf__load(bpf);
	if (!err)
		err = map_table(bpf->maps.connections, (void **)&monitor->connections);
	if (!err)
		err = map_table(bpf->maps.sessions, (void **)&monitor->sessions);
	if (!err)
		err = map_table(bpf->maps.calls, (void **)&monitor->blocks);
	if (!err)
		err = fill(bpf->maps.free_connections, options->connections);
	if (!err)
		err = fill(bpf->maps.free_sessions, options->sessions);
	return err ? load_failed(error, err) : 0;
}

static int check(const struct monitor_options *options, struct capture_error *error)
{
	if (!options->port_count || options->port_count > LDMA_MONITOR_PORTS)
		return capture_fail(error, -EINVAL, "1 to %d ports can be watched",
				    LDMA_MONITOR_PORTS);
	if (!options->connections || options->connections > LDMA_MONITOR_CONNECTIONS)
		return capture_fail(error, -EINVAL, "there is room for 1 to %d connections",
				    LDMA_MONITOR_CONNECTIONS);
	if (!options->sessions || options->sessions > LDMA_MONITOR_SESSIONS)
		return capture_fail(error, -EINVAL, "there is room for 1 to %d sessions",
				    LDMA_MONITOR_SESSIONS);
	return 0;
}

int monitor_open(const struct monitor_options *options, struct monitor **ret,
		 struct capture_error *error)
{
	struct monitor *monitor;
	int err;

	error->text[0] = 0;
	err = check(options, error);
	if (err)
		return err;
	monitor = calloc(1, sizeof(*monitor));
	if (!monitor)
		return capture_fail(error, -ENOMEM, "no memory");
	monitor->options = *options;
	monitor->known_connections =
		calloc(options->connections, sizeof(*monitor->known_connections));
	monitor->known_sessions = calloc(options->sessions, sizeof(*monitor->known_sessions));
	monitor->connection_rows = calloc(options->connections, sizeof(*monitor->connection_rows));
	monitor->session_rows = calloc(options->sessions, sizeof(*monitor->session_rows));
	if (!monitor->known_connections || !monitor->known_sessions || !monitor->connection_rows ||
	    !monitor->session_rows)
		err = capture_fail(error, -ENOMEM, "no memory");
	else
		err = load(monitor, error);
	if (err) {
		monitor_close(monitor);
		return err;
	}
	*ret = monitor;
	return 0;
}

void monitor_close(struct monitor *monitor)
{
	if (!monitor)
		return;
	monitor_detach(monitor);
	if (monitor->bpf) {
		unmap_table(monitor->bpf->maps.connections, monitor->connections);
		unmap_table(monitor->bpf->maps.sessions, monitor->sessions);
		unmap_table(monitor->bpf->maps.calls, monitor->blocks);
	}
	monitor_bpf__destroy(monitor->bpf);
	free(monitor->known_connections);
	free(monitor->known_sessions);
	free(monitor->connection_rows);
	free(monitor->session_rows);
	free(monitor);
}

int monitor_attach(struct monitor *monitor, const uint32_t *ifindexes, uint32_t count,
		   struct capture_error *error)
{
	int program = bpf_program__fd(monitor->bpf->progs.monitor);
	struct capture_options how = {.without_links = monitor->options.without_links};
	int err = 0;

	error->text[0] = 0;
	monitor_detach(monitor);
	if (!count || count > MONITOR_INTERFACES)
		return capture_fail(error, -EINVAL, "1 to %d interfaces can be monitored",
				    MONITOR_INTERFACES);
	/* Egress first. On lo connections are learnt at ingress alone, and replies count at egress: those that passed
	 * before that is attached would leave their calls open. On other interfaces it takes both to learn one. */
	for (uint32_t i = 0; !err && i < 2 * count; i++) {
		struct attachment *attachment = &monitor->attached[monitor->attached_count];

		err = attach_tc(program, ifindexes[i / 2], i % 2 == 0, &how, attachment, error);
		monitor->attached_count += !err;
	}
	if (err)
		monitor_detach(monitor);
	return err;
}

void monitor_detach(struct monitor *monitor)
{
	struct capture_error ignored;

	/* Backwards: the first of an interface may have made the qdisc that the second uses. */
	while (monitor->attached_count)
		detach(&monitor->attached[--monitor->attached_count], &ignored);
}

static bool is_there(const struct attachment *attachment)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)attachment->ifindex,
		    .attach_point = attachment->egress ? BPF_TC_EGRESS : BPF_TC_INGRESS);
	LIBBPF_OPTS(bpf_tc_opts, opts, .handle = attachment->handle,
		    .priority = attachment->priority);
	struct bpf_link_info info = {0};
	uint32_t size = sizeof(info);

	if (attachment->mode == CAPTURE_CLSACT)
		return !bpf_tc_query(&hook, &opts);
	/* A tcx link's interface stands where an XDP link's does; 0: it was detached, or the interface is gone. */
	return !bpf_obj_get_info_by_fd(attachment->link_fd, &info, &size) && info.xdp.ifindex;
}

bool monitor_is_attached(const struct monitor *monitor)
{
	for (uint32_t i = 0; i < monitor->attached_count; i++) {
		if (!is_there(&monitor->attached[i]))
			return false;
	}
	return monitor->attached_count;
}

enum capture_mode monitor_mode(const struct monitor *monitor)
{
	return monitor->attached_count ? monitor->attached[0].mode : CAPTURE_DETACHED;
}

static struct ldma_monitor_key key_of(const uint8_t *from, const uint8_t *to, uint32_t qpn)
{
	struct ldma_monitor_key key = {.qpn = qpn};

	memcpy(key.from, from, 16);
	memcpy(key.to, to, 16);
	return key;
}

int monitor_learn(struct monitor *monitor, const uint8_t *server, uint32_t server_qpn,
		  const uint8_t *client, uint32_t client_qpn, uint32_t ip_version)
{
	int places = bpf_map__fd(monitor->bpf->maps.places), err;
	struct ldma_monitor_key keys[] = {
		key_of(client, server, server_qpn),
		key_of(server, client, client_qpn),
	};
	struct ldma_monitor_connection *connection;
	struct ldma_monitor_place place;

	if (!bpf_map_lookup_elem(places, &keys[0], &place))
		return -EEXIST;
	err = bpf_map_lookup_and_delete_elem(bpf_map__fd(monitor->bpf->maps.free_connections), NULL,
					     &place.connection);
	if (err)
		return err == -ENOENT ? -ENOSPC : err;
	connection = &monitor->connections[place.connection];
	memcpy(connection->server, server, 16);
	memcpy(connection->client, client, 16);
	connection->server_qpn = server_qpn;
	connection->client_qpn = client_qpn;
	connection->ip_version = ip_version;
	connection->counts.last_ns = (uint64_t)ldma_clock_ns(CLOCK_MONOTONIC);
	connection->learnt_ns = connection->counts.last_ns;
	__atomic_store_n(&connection->began_ns, connection->counts.last_ns, __ATOMIC_RELEASE);
	for (place.way = 0; !err && place.way < LDMA_MONITOR_WAYS; place.way++)
		err = bpf_map_update_elem(places, &keys[place.way], &place, BPF_ANY);
	__atomic_add_fetch(&monitor->bpf->data->generation, 1, __ATOMIC_SEQ_CST);
	if (err) {
		monitor_forget_places(monitor, place.connection);
		monitor_free_connection(monitor, place.connection);
	}
	return err;
}

void monitor_forget_places(struct monitor *monitor, uint32_t index)
{
	const struct ldma_monitor_connection *connection = &monitor->connections[index];
	int places = bpf_map__fd(monitor->bpf->maps.places);
	struct ldma_monitor_key keys[] = {
		key_of(connection->client, connection->server, connection->server_qpn),
		key_of(connection->server, connection->client, connection->client_qpn),
	};
	struct ldma_monitor_place place;

	for (int i = 0; i < 2; i++) {
		if (!bpf_map_lookup_elem(places, &keys[i], &place) && place.connection == index)
			bpf_map_delete_elem(places, &keys[i]);
	}
	__atomic_add_fetch(&monitor->bpf->data->generation, 1, __ATOMIC_SEQ_CST);
}

void monitor_free_connection(struct monitor *monitor, uint32_t index)
{
	memset(&monitor->blocks[index * LDMA_MONITOR_BLOCKS], 0,
	       LDMA_MONITOR_BLOCKS * sizeof(*monitor->blocks));
	memset(&monitor->connections[index], 0, sizeof(*monitor->connections));
	memset(&monitor->known_connections[index], 0, sizeof(*monitor->known_connections));
	bpf_map_update_elem(bpf_map__fd(monitor->bpf->maps.free_connections), NULL, &index, 0);
}

void monitor_forget_session(struct monitor *monitor, uint32_t index)
{
	bpf_map_delete_elem(bpf_map__fd(monitor->bpf->maps.sessions_by_id),
			    monitor->sessions[index].id);
	__atomic_add_fetch(&monitor->bpf->data->sessions_generation, 1, __ATOMIC_SEQ_CST);
}

void monitor_free_session(struct monitor *monitor, uint32_t index)
{
	memset(&monitor->sessions[index], 0, sizeof(*monitor->sessions));
	memset(&monitor->known_sessions[index], 0, sizeof(*monitor->known_sessions));
	bpf_map_update_elem(bpf_map__fd(monitor->bpf->maps.free_sessions), NULL, &index, 0);
}

uint32_t monitor_sessions_high(const struct monitor *monitor)
{
	return __atomic_load_n(&monitor->bpf->bss->sessions_high, __ATOMIC_RELAXED);
}

struct ldma_monitor_losses monitor_losses(const struct monitor *monitor)
{
	return monitor->bpf->bss->losses;
}

int monitor_feed(struct monitor *monitor, const uint8_t *frame, uint32_t length,
		 uint32_t segment_bytes)
{
	int program = bpf_program__fd(monitor->bpf->progs.monitor), err = 0;

	if (!segment_bytes && length > FED_BYTES)
		length = FED_BYTES;
	/* On lo a frame passes egress, then ingress. */
	for (uint32_t ingress = 0; !err && ingress < 2; ingress++) {
		struct __sk_buff skb = {.gso_size = segment_bytes, .ingress_ifindex = ingress};
		LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = frame, .data_size_in = length,
			    .ctx_in = &skb, .ctx_size_in = sizeof(skb), .repeat = 1);

		err = bpf_prog_test_run_opts(program, &opts);
	}
	return err;
}
