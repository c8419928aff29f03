/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/nfsd_session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/capture_attach.h"
#include "bpf/libbpf_words.h"
#include "bpf/nfsd_internal.h"
#include "nfsd.skel.h"

static int load_failed(struct capture_error *error, int err)
{
	switch (err) {
	case -EPERM:
	case -EACCES:
		return capture_fail(error, err,
				    geteuid()
					    ? "looking into the kernel's NFS server needs root "
					      "(CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN): run it with "
					      "sudo"
					    : "this machine does not let root load BPF programs "
					      "(a container without CAP_BPF, or a locked-down "
					      "kernel), or its verifier refused them");
	case -ENOSYS:
		return capture_fail(error, err,
				    "this kernel has no BPF: boot one with CONFIG_BPF_SYSCALL");
	}
	return capture_fail(error, err, "the BPF programs for nfsd cannot be loaded: %s",
			    strerror(-err));
}

static int set_sizes(struct nfsd_bpf *bpf, const struct nfsd_options *options)
{
	const struct {
		struct bpf_map *map;
		uint32_t entries;
	} sizes[] = {
		{bpf->maps.connections, options->connections},
		{bpf->maps.free_connections, options->connections},
		{bpf->maps.connections_by_transport, options->connections},
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

/* Fills a stack of free places from the highest on, so that low ones are used first. */
static int fill(const struct bpf_map *stack, uint32_t count)
{
	int err = 0;

	while (!err && count--)
		err = bpf_map_update_elem(bpf_map__fd(stack), NULL, &count, 0);
	return err;
}

static int load(struct nfsd_session *session, struct capture_error *error)
{
	struct nfsd_bpf *bpf;
	int err;

	libbpf_words(session->options.verbose);
	session->bpf = bpf = nfsd_bpf__open();
	if (!bpf)
		return load_failed(error, -errno);
	err = nfsd_choose_programs(session, error);
	if (err)
		return err;
	err = set_sizes(bpf, &session->options);
	if (!err)
		err = nfsd_bpf__load(bpf);
	if (!err)
		err = map_table(bpf->maps.connections, (void **)&session->connections);
	if (!err)
		err = map_table(bpf->maps.sessions, (void **)&session->sessions);
	if (!err)
		err = fill(bpf->maps.free_connections, session->options.connections);
	if (!err)
		err = fill(bpf->maps.free_sessions, session->options.sessions);
	return err ? load_failed(error, err) : nfsd_attach_programs(session, error);
}

static int check(const struct nfsd_options *options, struct capture_error *error)
{
	if (!options->connections || options->connections > LDMA_MONITOR_CONNECTIONS)
		return capture_fail(error, -EINVAL, "there is room for 1 to %d connections",
				    LDMA_MONITOR_CONNECTIONS);
	if (!options->sessions || options->sessions > LDMA_MONITOR_SESSIONS)
		return capture_fail(error, -EINVAL, "there is room for 1 to %d sessions",
				    LDMA_MONITOR_SESSIONS);
	return 0;
}

int nfsd_open(const struct nfsd_options *options, struct nfsd_session **ret,
	      struct capture_error *error)
{
	struct nfsd_session *session;
	int err;

	error->text[0] = 0;
	err = check(options, error);
	if (err)
		return err;
	session = calloc(1, sizeof(*session));
	if (!session)
		return capture_fail(error, -ENOMEM, "no memory");
	session->options = *options;
	session->known_connections =
		calloc(options->connections, sizeof(*session->known_connections));
	session->known_sessions = calloc(options->sessions, sizeof(*session->known_sessions));
	session->connection_rows = calloc(options->connections, sizeof(*session->connection_rows));
	session->session_rows = calloc(options->sessions, sizeof(*session->session_rows));
	if (!session->known_connections || !session->known_sessions || !session->connection_rows ||
	    !session->session_rows)
		err = capture_fail(error, -ENOMEM, "no memory");
	else
		err = load(session, error);
	if (err) {
		nfsd_close(session);
		return err;
	}
	*ret = session;
	return 0;
}

void nfsd_close(struct nfsd_session *session)
{
	if (!session)
		return;
	/* Backwards: no call begins any more while others end. */
	for (int i = NFSD_PROGRAMS; i--;)
		bpf_link__destroy(session->links[i]);
	if (session->bpf) {
		unmap_table(session->bpf->maps.connections, session->connections);
		unmap_table(session->bpf->maps.sessions, session->sessions);
	}
	nfsd_bpf__destroy(session->bpf);
	free(session->known_connections);
	free(session->known_sessions);
	free(session->connection_rows);
	free(session->session_rows);
	free(session);
}

void nfsd_free_connection(struct nfsd_session *session, uint32_t index)
{
	memset(&session->connections[index], 0, sizeof(*session->connections));
	memset(&session->known_connections[index], 0, sizeof(*session->known_connections));
	bpf_map_update_elem(bpf_map__fd(session->bpf->maps.free_connections), NULL, &index, 0);
}

void nfsd_forget_session(struct nfsd_session *session, uint32_t index)
{
	bpf_map_delete_elem(bpf_map__fd(session->bpf->maps.sessions_by_id),
			    session->sessions[index].id);
}

void nfsd_free_session(struct nfsd_session *session, uint32_t index)
{
	memset(&session->sessions[index], 0, sizeof(*session->sessions));
	memset(&session->known_sessions[index], 0, sizeof(*session->known_sessions));
	bpf_map_update_elem(bpf_map__fd(session->bpf->maps.free_sessions), NULL, &index, 0);
}

uint32_t nfsd_threads(const struct nfsd_session *session)
{
	return __atomic_load_n(&session->bpf->bss->threads, __ATOMIC_RELAXED);
}

struct ldma_nfsd_losses nfsd_losses(const struct nfsd_session *session)
{
	return session->bpf->bss->losses;
}
