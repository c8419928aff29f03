/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/memory_session.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/libbpf_words.h"
#include "memory.skel.h"

#define PROGRAMS 3
#define WORDS (sizeof(struct ldma_memory_counters) / sizeof(uint64_t))

struct memory_session {
	struct memory_bpf *bpf;
	struct bpf_link *links[PROGRAMS];
	uint32_t attached;
};

/* Leaves out a program whose record the kernel does not know: it would keep the others from being loaded. */
static int leave_out_unknown(struct memory_bpf *bpf)
{
	struct btf *btf = btf__load_vmlinux_btf();

	if (!btf)
		return -ESRCH;
	if (btf__find_by_name_kind(btf, "trace_event_raw_mm_compaction_end", BTF_KIND_STRUCT) < 0)
		bpf_program__set_autoload(bpf->progs.compaction_end, false);
	if (btf__find_by_name_kind(btf, "trace_event_raw_mm_migrate_pages", BTF_KIND_STRUCT) < 0)
		bpf_program__set_autoload(bpf->progs.migrate_pages, false);
	btf__free(btf);
	return 0;
}

static int attach(struct memory_session *session)
{
	struct bpf_program *programs[PROGRAMS] = {
		session->bpf->progs.compaction_begin,
		session->bpf->progs.compaction_end,
		session->bpf->progs.migrate_pages,
	};

	for (int i = 0; i < PROGRAMS; i++) {
		if (!bpf_program__autoload(programs[i]))
			continue;
		session->links[i] = bpf_program__attach(programs[i]);
		if (session->links[i])
			session->attached |= 1u << i;
		else if (errno != ENOENT)
			return -errno;
	}
	return session->attached ? 0 : -ENOENT;
}

int memory_open(struct memory_session **ret)
{
	struct memory_session *session = calloc(1, sizeof(*session));
	int err;

	if (!session)
		return -ENOMEM;
	libbpf_words(false);
	session->bpf = memory_bpf__open();
	err = session->bpf ? leave_out_unknown(session->bpf) : -errno;
	if (!err)
		err = memory_bpf__load(session->bpf);
	if (!err)
		err = attach(session);
	if (err) {
		memory_close(session);
		return err;
	}
	*ret = session;
	return 0;
}

void memory_close(struct memory_session *session)
{
	if (!session)
		return;
	for (int i = 0; i < PROGRAMS; i++)
		bpf_link__destroy(session->links[i]);
	memory_bpf__destroy(session->bpf);
	free(session);
}

uint32_t memory_attached(const struct memory_session *session)
{
	return session->attached;
}

int memory_counters(struct memory_session *session, struct ldma_memory_counters *ret)
{
	int cpus = libbpf_num_possible_cpus(), err;
	uint64_t sums[WORDS] = {0}, (*each)[WORDS];
	uint32_t key = 0;

	if (cpus < 0)
		return cpus;
	each = calloc((size_t)cpus, sizeof(*each));
	if (!each)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(session->bpf->maps.counters), &key, each);
	for (int cpu = 0; !err && cpu < cpus; cpu++) {
		for (size_t i = 0; i < WORDS; i++)
			sums[i] += each[cpu][i];
	}
	free(each);
	memcpy(ret, sums, sizeof(*ret));
	return err;
}
