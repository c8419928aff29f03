/* SPDX-License-Identifier: BSD-2-Clause */
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "bpf/capture_attach.h"
#include "bpf/nfsd_internal.h"
#include "nfsd.skel.h"

#define TRACEPOINT "btf_trace_" /* begins the names of tracepoints' types */

enum module { SUNRPC, NFSD, RPCRDMA, MODULES };

static const char *const module_names[MODULES] = {"sunrpc", "nfsd", "rpcrdma"};

/* A program, and what it attaches to. Programs of one part are of use only together. */
struct target {
	const char *program;
	enum module module;
	const char *function, *tracepoint; /* one of the two */
	const char *part;                  /* NULL: nothing works without it */
};

/* In the order of attaching: what ends a call comes before what begins it. */
static const struct target targets[NFSD_PROGRAMS] = {
	{"call_ends", SUNRPC, "svc_process", NULL, NULL},
	{"reply_sent", SUNRPC, NULL, "svc_send", NULL},
	{"connection_ends", SUNRPC, NULL, "svc_xprt_free", NULL},
	{"sequence_ends", NFSD, "nfsd4_sequence", NULL, "sessions"},
	{"read_ends", NFSD, NULL, "nfsd_read_io_done", "reads"},
	{"read_by_pages", NFSD, NULL, "nfsd_read_splice", "reads"},
	{"read_into_memory", NFSD, NULL, "nfsd_read_vector", "reads"},
	{"write_ends", NFSD, NULL, "nfsd_write_io_done", "writes"},
	{"write_begins", NFSD, NULL, "nfsd_write_opened", "writes"},
	{"commit_ends", NFSD, "nfsd_commit", NULL, "commits"},
	{"commit_begins", NFSD, "nfsd_commit", NULL, "commits"},
	{"bytes_arrive", SUNRPC, "svc_data_ready", NULL, "arrivals over TCP"},
	{"thread_has_read", SUNRPC, "svc_xprt_received", NULL, "arrivals over TCP"},
	{"send_queue_has_room", RPCRDMA, NULL, "svcrdma_sq_retry", "send queues"},
	{"send_queue_full", RPCRDMA, NULL, "svcrdma_sq_full", "send queues"},
	{"context_made", RPCRDMA, NULL, "svcrdma_rwctx_empty", "contexts"},
	{"receive_failed", RPCRDMA, NULL, "svcrdma_rq_post_err", "Receives"},
	{"fetch_ends", RPCRDMA, "svc_rdma_wc_read_done", NULL, "fetches"},
	{"fetch_begins", RPCRDMA, "svc_rdma_process_read_list", NULL, "fetches"},
	{"header_read", RPCRDMA, NULL, "svcrdma_decode_rqst", "credits asked"},
	{"context_released", RPCRDMA, "svc_rdma_release_ctxt", NULL, "arrivals over RDMA"},
	{"context_put", RPCRDMA, "svc_rdma_recv_ctxt_put", NULL, "arrivals over RDMA"},
	{"call_received", RPCRDMA, "svc_rdma_recvfrom", NULL, "arrivals over RDMA"},
	{"receive_done", RPCRDMA, "svc_rdma_wc_receive", NULL, "arrivals over RDMA"},
	{"nfsd_begins", NFSD, "nfsd_dispatch", NULL, NULL},
	{"call_begins", SUNRPC, "svc_process", NULL, NULL},
};

static const char *name_of(const struct target *target)
{
	return target->function ? target->function : target->tracepoint;
}

static bool is_called(const struct btf *btf, const struct btf_type *type,
		      const struct target *target)
{
	const char *name = btf__name_by_offset(btf, type->name_off);

	if (target->function)
		return btf_is_func(type) && !strcmp(name, target->function);
	return btf_is_typedef(type) && !strncmp(name, TRACEPOINT, sizeof(TRACEPOINT) - 1) &&
	       !strcmp(name + sizeof(TRACEPOINT) - 1, target->tracepoint);
}

/* Marks the targets of a module that are there. Its types follow the kernel's; those of a module that is built in are
 * among the kernel's. */
static void find_targets(const struct btf *kernel, enum module module, bool found[NFSD_PROGRAMS])
{
	struct btf *own = btf__load_module_btf(module_names[module], (struct btf *)kernel);
	const struct btf *btf = own ? own : kernel;
	uint32_t first = own ? btf__type_cnt(kernel) : 1;

	for (uint32_t id = first; id < btf__type_cnt(btf); id++) {
		const struct btf_type *type = btf__type_by_id(btf, id);

		if (!btf_is_func(type) && !btf_is_typedef(type))
			continue;
		for (int i = 0; i < NFSD_PROGRAMS; i++)
			found[i] |=
				targets[i].module == module && is_called(btf, type, &targets[i]);
	}
	btf__free(own);
}

static struct bpf_program *program_of(const struct nfsd_session *session,
				      const struct target *target)
{
	return bpf_object__find_program_by_name(session->bpf->obj, target->program);
}

static bool is_missing(const struct nfsd_session *session, const char *part)
{
	for (uint32_t i = 0; i < session->missing_count; i++) {
		if (!strcmp(session->missing[i].part, part))
			return true;
	}
	return false;
}

/* Takes note of what the kernel lacks. -ENOENT: nothing works without it. */
static int take_note(struct nfsd_session *session, const struct target *target,
		     struct capture_error *error)
{
	if (!target->part)
		return capture_fail(error, -ENOENT,
				    "the kernel's NFS server is not there, or not as it is known "
				    "here: there is no %s in the module %s (modprobe nfsd)",
				    name_of(target), module_names[target->module]);
	if (!is_missing(session, target->part))
		session->missing[session->missing_count++] = (struct nfsd_missing){
			.part = target->part,
			.target = name_of(target),
			.module = module_names[target->module],
		};
	return 0;
}

int nfsd_choose_programs(struct nfsd_session *session, struct capture_error *error)
{
	struct btf *kernel = btf__load_vmlinux_btf();
	bool found[NFSD_PROGRAMS] = {0};
	int err = 0;

	if (!kernel)
		return capture_fail(error, -ESRCH,
				    "this kernel has no BTF: boot one with CONFIG_DEBUG_INFO_BTF");
	for (int i = 0; i < MODULES; i++)
		find_targets(kernel, (enum module)i, found);
	btf__free(kernel);
	for (int i = 0; !err && i < NFSD_PROGRAMS; i++) {
		if (!found[i])
			err = take_note(session, &targets[i], error);
	}
	for (int i = 0; !err && i < NFSD_PROGRAMS; i++) {
		if (targets[i].part && is_missing(session, targets[i].part))
			err = bpf_program__set_autoload(program_of(session, &targets[i]), false);
	}
	return err;
}

int nfsd_attach_programs(struct nfsd_session *session, struct capture_error *error)
{
	for (int i = 0; i < NFSD_PROGRAMS; i++) {
		struct bpf_program *program =
			bpf_object__find_program_by_name(session->bpf->obj, targets[i].program);
		int err;

		if (!bpf_program__autoload(program))
			continue;
		session->links[i] = bpf_program__attach(program);
		if (session->links[i])
			continue;
		err = -errno;
		return capture_fail(error, err, "%s of the kernel cannot be watched: %s",
				    name_of(&targets[i]), strerror(-err));
	}
	return 0;
}

uint32_t nfsd_missing(const struct nfsd_session *session, struct nfsd_missing *ret, uint32_t most)
{
	for (uint32_t i = 0; i < session->missing_count && i < most; i++)
		ret[i] = session->missing[i];
	return session->missing_count;
}
