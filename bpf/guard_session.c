/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/guard_session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "bpf/libbpf_words.h"
#include "guard.skel.h"

#define LINK "link"
#define KNOWN_QPS_BYTES (LDMA_GUARD_QP_WORDS * sizeof(uint64_t))

enum { RULESETS, COUNTERS, BUCKETS, KNOWN_QPS, MAP_COUNT };

static const struct {
	const char *name; /* of the map and of its pin */
	uint32_t value_bytes, entries;
} layout[MAP_COUNT] = {
	[RULESETS] = {"rulesets", 4, 1},
	[COUNTERS] = {"counters", sizeof(struct ldma_guard_counters), LDMA_GUARD_COUNTERS},
	[BUCKETS] = {"buckets", sizeof(struct ldma_guard_bucket), LDMA_GUARD_SLOTS},
	[KNOWN_QPS] = {"known_qps", sizeof(uint64_t), LDMA_GUARD_QP_WORDS},
};

struct guard_session {
	int maps[MAP_COUNT];
	uint64_t *known_qps;
};

bool guard_is_bpffs(const char *path)
{
	struct statfs info;

	return !statfs(path, &info) && (uint32_t)info.f_type == BPF_FS_MAGIC;
}

static int link_info(int fd, struct bpf_link_info *ret)
{
	uint32_t size = sizeof(*ret);

	memset(ret, 0, sizeof(*ret));
	return bpf_obj_get_info_by_fd(fd, ret, &size);
}

/* Returns the link that holds XDP program prog_id on the interface, or 0 if none does. */
static uint32_t find_link(uint32_t prog_id, uint32_t ifindex)
{
	struct bpf_link_info info;
	uint32_t id = 0;
	int fd, err;

	while (!bpf_link_get_next_id(id, &id)) {
		fd = bpf_link_get_fd_by_id(id);
		if (fd < 0)
			continue;
		err = link_info(fd, &info);
		close(fd);
		if (!err && info.type == BPF_LINK_TYPE_XDP && info.prog_id == prog_id &&
		    info.xdp.ifindex == ifindex)
			return id;
	}
	return 0;
}

int guard_xdp_query(uint32_t ifindex, struct guard_xdp *ret)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	struct bpf_prog_info info = {0};
	uint32_t size = sizeof(info);
	int err, fd;

	memset(ret, 0, sizeof(*ret));
	err = bpf_xdp_query((int)ifindex, 0, &query);
	if (err || query.attach_mode == XDP_ATTACHED_NONE)
		return err;
	ret->generic = query.attach_mode == XDP_ATTACHED_SKB;
	/* With programs in several modes prog_id is 0. */
	ret->prog_id = query.prog_id       ? query.prog_id
		       : query.drv_prog_id ? query.drv_prog_id
		       : query.skb_prog_id ? query.skb_prog_id
					   : query.hw_prog_id;
	fd = bpf_prog_get_fd_by_id(ret->prog_id);
	if (fd >= 0) {
		if (!bpf_obj_get_info_by_fd(fd, &info, &size))
			memcpy(ret->name, info.name, sizeof(ret->name) - 1);
		close(fd);
	}
	ret->link_id = find_link(ret->prog_id, ifindex);
	return 0;
}

static int pin_path(const char *directory, const char *name, char *buf, size_t size)
{
	int length = snprintf(buf, size, "%s/%s", directory, name);

	return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : 0;
}

static int pin(int fd, const char *directory, const char *name)
{
	char path[512];
	int err = pin_path(directory, name, path, sizeof(path));

	return err ? err : bpf_obj_pin(fd, path);
}

static int open_pin(const char *directory, const char *name)
{
	char path[512];
	int err = pin_path(directory, name, path, sizeof(path));

	return err ? err : bpf_obj_get(path);
}

/* Returns the link's descriptor. */
static int attach(int prog_fd, uint32_t ifindex)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = XDP_FLAGS_DRV_MODE);
	struct guard_xdp other;
	int fd = bpf_link_create(prog_fd, (int)ifindex, BPF_XDP, &opts);

	if (fd >= 0 || fd == -EBUSY || fd == -ENODEV || fd == -EPERM)
		return fd;
	opts.flags = XDP_FLAGS_SKB_MODE;
	fd = bpf_link_create(prog_fd, (int)ifindex, BPF_XDP, &opts);
	/* Drivers and modes differ in the error that they return when the place is taken. */
	if (fd < 0 && !guard_xdp_query(ifindex, &other) && other.prog_id)
		return -EBUSY;
	return fd;
}

static int start(const struct guard_bpf *bpf, uint32_t ifindex, const char *directory)
{
	const struct bpf_map *maps[MAP_COUNT] = {
		[RULESETS] = bpf->maps.rulesets,
		[COUNTERS] = bpf->maps.counters,
		[BUCKETS] = bpf->maps.buckets,
		[KNOWN_QPS] = bpf->maps.known_qps,
	};
	int err, fd;

	for (int i = 0; i < MAP_COUNT; i++) {
		err = pin(bpf_map__fd(maps[i]), directory, layout[i].name);
		if (err)
			return err;
	}
	fd = attach(bpf_program__fd(bpf->progs.guard_xdp), ifindex);
	if (fd < 0)
		return fd;
	err = pin(fd, directory, LINK);
	close(fd); /* the last reference if it could not be pinned: detaches */
	return err;
}

int guard_start(uint32_t ifindex, const char *directory, struct guard_session **ret)
{
	struct guard_bpf *bpf;
	int err;

	libbpf_words(false);
	bpf = guard_bpf__open();
	if (!bpf)
		return -errno;
	err = guard_bpf__load(bpf);
	if (!err)
		err = start(bpf, ifindex, directory);
	guard_bpf__destroy(bpf);
	return err ? err : guard_open(directory, ret);
}

static int open_link(const char *directory)
{
	struct bpf_link_info info;
	int fd = open_pin(directory, LINK), err;

	if (fd < 0)
		return fd;
	err = link_info(fd, &info);
	if (!err && info.type != BPF_LINK_TYPE_XDP)
		err = -EPROTO;
	if (!err && !info.xdp.ifindex)
		err = -ENODEV;
	if (err)
		close(fd);
	return err ? err : fd;
}

static int open_maps(struct guard_session *session, const char *directory)
{
	struct bpf_map_info info;
	uint32_t size;
	int fd;

	for (int i = 0; i < MAP_COUNT; i++) {
		memset(&info, 0, sizeof(info));
		size = sizeof(info);
		fd = open_pin(directory, layout[i].name);
		if (fd < 0)
			return fd == -ENOENT ? -EPROTO : fd;
		session->maps[i] = fd;
		if (bpf_obj_get_info_by_fd(fd, &info, &size))
			return -errno;
		if (info.value_size != layout[i].value_bytes ||
		    info.max_entries != layout[i].entries)
			return -EPROTO;
	}
	return 0;
}

int guard_open(const char *directory, struct guard_session **ret)
{
	struct guard_session *session;
	int err = open_link(directory);

	if (err < 0)
		return err;
	close(err);
	session = malloc(sizeof(*session));
	if (!session)
		return -ENOMEM;
	memset(session->maps, -1, sizeof(session->maps));
	session->known_qps = MAP_FAILED;
	err = open_maps(session, directory);
	if (!err) {
		session->known_qps = mmap(NULL, KNOWN_QPS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
					  session->maps[KNOWN_QPS], 0);
		if (session->known_qps == MAP_FAILED)
			err = -errno;
	}
	if (err) {
		guard_close(session);
		return err;
	}
	*ret = session;
	return 0;
}

void guard_close(struct guard_session *session)
{
	if (!session)
		return;
	if (session->known_qps != MAP_FAILED)
		munmap(session->known_qps, KNOWN_QPS_BYTES);
	for (int i = 0; i < MAP_COUNT; i++) {
		if (session->maps[i] >= 0)
			close(session->maps[i]);
	}
	free(session);
}

int guard_detach(const char *directory)
{
	int fd = open_pin(directory, LINK), err;

	if (fd < 0)
		return fd;
	err = bpf_link_detach(fd);
	close(fd);
	return err == -ENOLINK ? 0 : err; /* its interface is gone */
}

int guard_rules(struct guard_session *session, struct ldma_guard_ruleset *ret)
{
	uint32_t key = 0, id;
	int err, fd;

	memset(ret, 0, sizeof(*ret));
	err = bpf_map_lookup_elem(session->maps[RULESETS], &key, &id);
	if (err)
		return err == -ENOENT ? 0 : err;
	fd = bpf_map_get_fd_by_id(id);
	if (fd < 0)
		return fd;
	err = bpf_map_lookup_elem(fd, &key, ret);
	close(fd);
	return err ? err : ret->count > LDMA_GUARD_RULES ? -EPROTO : 0;
}

static int clear_slot(struct guard_session *session, uint32_t slot)
{
	const struct ldma_guard_bucket bucket = {0};
	int cpus = libbpf_num_possible_cpus(), err;
	struct ldma_guard_counters *zeros;

	if (cpus < 0)
		return cpus;
	zeros = calloc((size_t)cpus, sizeof(*zeros));
	if (!zeros)
		return -ENOMEM;
	err = bpf_map_update_elem(session->maps[COUNTERS], &slot, zeros, BPF_ANY);
	free(zeros);
	return err ? err : bpf_map_update_elem(session->maps[BUCKETS], &slot, &bucket, BPF_ANY);
}

static int assign_slots(struct guard_session *session, struct ldma_guard_ruleset *ruleset)
{
	bool used[LDMA_GUARD_SLOTS] = {0};
	struct ldma_guard_ruleset present;
	uint32_t slot = 0;
	int err = guard_rules(session, &present);

	for (uint32_t i = 0; !err && i < present.count; i++)
		used[present.rules[i].slot % LDMA_GUARD_SLOTS] = true;
	for (uint32_t i = 0; !err && i < ruleset->count; i++) {
		struct ldma_guard_rule *rule = &ruleset->rules[i];

		if (rule->slot != LDMA_GUARD_SLOT_NEW) {
			err = rule->slot >= LDMA_GUARD_SLOTS || !used[rule->slot] ? -EINVAL : 0;
			continue;
		}
		while (used[slot]) /* there are twice as many slots as rules */
			slot++;
		rule->slot = (uint16_t)slot++;
		err = clear_slot(session, rule->slot);
	}
	return err;
}

int guard_replace(struct guard_session *session, struct ldma_guard_ruleset *ruleset)
{
	uint32_t key = 0;
	int err, fd;

	if (ruleset->count > LDMA_GUARD_RULES)
		return -E2BIG;
	err = assign_slots(session, ruleset);
	if (err)
		return err;
	fd = bpf_map_create(BPF_MAP_TYPE_ARRAY, "ruleset", sizeof(key), sizeof(*ruleset), 1, NULL);
	if (fd < 0)
		return fd;
	err = bpf_map_update_elem(fd, &key, ruleset, BPF_ANY);
	if (!err)
		err = bpf_map_update_elem(session->maps[RULESETS], &key, &fd, BPF_ANY);
	close(fd);
	return err;
}

int guard_counters(struct guard_session *session, struct ldma_guard_counters *ret)
{
	int cpus = libbpf_num_possible_cpus(), err = 0;
	struct ldma_guard_counters *each;

	if (cpus < 0)
		return cpus;
	each = calloc((size_t)cpus, sizeof(*each));
	if (!each)
		return -ENOMEM;
	memset(ret, 0, LDMA_GUARD_COUNTERS * sizeof(*ret));
	for (uint32_t slot = 0; !err && slot < LDMA_GUARD_COUNTERS; slot++) {
		err = bpf_map_lookup_elem(session->maps[COUNTERS], &slot, each);
		for (int cpu = 0; !err && cpu < cpus; cpu++) {
			ret[slot].packets += each[cpu].packets;
			ret[slot].bytes += each[cpu].bytes;
			ret[slot].dropped += each[cpu].dropped;
			if (each[cpu].last_ns > ret[slot].last_ns)
				ret[slot].last_ns = each[cpu].last_ns;
		}
	}
	free(each);
	return err;
}

uint64_t *guard_known_qps(struct guard_session *session)
{
	return session->known_qps;
}
