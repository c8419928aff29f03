/* SPDX-License-Identifier: BSD-2-Clause */
#include "bpf/capture_session.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/capture_attach.h"
#include "bpf/gather.h"
#include "bpf/libbpf_words.h"
#include "bpf/ring.h"
#include "bpf/wall_clock.h"
#include "capture.skel.h"

struct capture_session {
	struct capture_options options;
	struct capture_bpf *bpf;
	struct ldma_ring ring;
	struct attachment rx, tx;
	struct capture_foreign foreign;
	int64_t wall_offset_ns; /* CLOCK_REALTIME less CLOCK_MONOTONIC */
	int64_t drained_ns; /* when the ring was last emptied; 0: it was left with something in it */
	int cpus;
};

static int load_failed(struct capture_error *error, int err)
{
	switch (err) {
	case -EPERM:
	case -EACCES:
		return capture_fail(
			error, err,
			geteuid() ? "loading BPF programs needs root (CAP_BPF, CAP_NET_ADMIN, "
				    "CAP_PERFMON): run it with sudo"
				  : "this machine does not let root load BPF programs (a container "
				    "without CAP_BPF, or a locked-down kernel), or its verifier "
				    "refused them: --verbose shows its words");
	case -ENOSYS:
		return capture_fail(error, err,
				    "this kernel has no BPF: boot one with CONFIG_BPF_SYSCALL");
	case -ENOMEM:
		return capture_fail(error, err,
				    "no memory for the ring buffer: ask for less with --ring");
	}
	return capture_fail(error, err,
			    "the BPF programs cannot be loaded (%s): --verbose says more",
			    strerror(-err));
}

static int load(struct capture_session *session, struct capture_error *error)
{
	const struct capture_options *options = &session->options;
	uint32_t ring_bytes =
		options->ring_bytes ? options->ring_bytes : CAPTURE_RING_BYTES_DEFAULT;
	struct capture_bpf *bpf;
	int err;

	libbpf_words(options->verbose);
	session->bpf = bpf = capture_bpf__open();
	if (!bpf)
		return load_failed(error, -errno);
	memcpy((void *)(uintptr_t)&bpf->rodata->config, &options->config, sizeof(options->config));
	bpf_program__set_autoload(bpf->progs.capture_xdp, options->rx && !options->rx_by_tc);
	bpf_program__set_autoload(bpf->progs.capture_tc_ingress, options->rx && options->rx_by_tc);
	bpf_program__set_autoload(bpf->progs.capture_tc_egress, options->tx);
	err = bpf_map__set_max_entries(bpf->maps.ring, ring_bytes);
	if (!err)
		err = capture_bpf__load(bpf);
	if (err)
		return load_failed(error, err);
	err = ldma_ring_map(bpf_map__fd(bpf->maps.ring), ring_bytes, &session->ring);
	if (err)
		return capture_fail(error, err, "the ring buffer cannot be mapped: %s",
				    strerror(-err));
	return 0;
}

int capture_session_open(const struct capture_options *options, struct capture_session **ret,
			 struct capture_error *error)
{
	struct capture_session *session;
	struct ldma_capture_config *config;
	uint32_t ring = options->ring_bytes, page = (uint32_t)sysconf(_SC_PAGESIZE);
	int err;

	error->text[0] = 0;
	if (ring && (ring < page || ring & (ring - 1)))
		return capture_fail(error, -EINVAL,
				    "the ring takes a power of two of at least %u bytes", page);
	if (options->config.snaplen < LDMA_CAPTURE_SNAPLEN_MIN ||
	    options->config.snaplen > LDMA_CAPTURE_SNAPLEN_MAX)
		return capture_fail(error, -EINVAL, "snaplen is %u to %u bytes",
				    LDMA_CAPTURE_SNAPLEN_MIN, LDMA_CAPTURE_SNAPLEN_MAX);
	if (!options->rx && !options->tx)
		return capture_fail(error, -EINVAL, "neither direction was asked for");
	session = calloc(1, sizeof(*session));
	if (!session)
		return capture_fail(error, -ENOMEM, "no memory");
	session->options = *options;
	config = &session->options.config;
	config->wake_bytes = (ring ? ring : CAPTURE_RING_BYTES_DEFAULT) / 8;
	session->cpus = libbpf_num_possible_cpus();
	err = load(session, error);
	if (err) {
		capture_session_close(session);
		return err;
	}
	session->wall_offset_ns = ldma_wall_offset_ns();
	*ret = session;
	return 0;
}

int capture_session_attach(struct capture_session *session, uint32_t ifindex,
			   struct capture_error *error)
{
	const struct capture_options *options = &session->options;
	struct capture_bpf *bpf = session->bpf;
	struct capture_error ignored;
	int err = 0;

	error->text[0] = 0;
	capture_session_detach(session, &ignored);
	if (options->rx && options->rx_by_tc)
		err = attach_tc(bpf_program__fd(bpf->progs.capture_tc_ingress), ifindex, false,
				options, &session->rx, error);
	else if (options->rx)
		err = attach_xdp(bpf_program__fd(bpf->progs.capture_xdp), ifindex, options,
				 &session->foreign, &session->rx, error);
	if (!err && options->tx)
		err = attach_tc(bpf_program__fd(bpf->progs.capture_tc_egress), ifindex, true,
				options, &session->tx, error);
	if (err)
		capture_session_detach(session, &ignored);
	return err;
}

int capture_session_detach(struct capture_session *session, struct capture_error *error)
{
	int err;

	/* In this order: the ingress side may have made the qdisc that the egress side uses. */
	err = detach(&session->tx, error);
	return detach(&session->rx, error) ?: err;
}

void capture_session_close(struct capture_session *session)
{
	struct capture_error ignored;

	if (!session)
		return;
	capture_session_detach(session, &ignored);
	ldma_ring_unmap(&session->ring);
	capture_bpf__destroy(session->bpf);
	free(session);
}

enum capture_mode capture_session_rx_mode(const struct capture_session *session)
{
	return session->rx.mode;
}

enum capture_mode capture_session_tx_mode(const struct capture_session *session)
{
	return session->tx.mode;
}

const struct capture_foreign *capture_session_foreign(const struct capture_session *session)
{
	return &session->foreign;
}

static bool batch_is_full(const struct capture_session *session, const struct ldma_batch *batch)
{
	return batch->count == batch->capacity ||
	       batch->bytes_size - batch->bytes_used < session->options.config.snaplen;
}

static int drain(struct capture_session *session, struct ldma_batch *batch)
{
	uint32_t before = batch->count, bytes;
	const struct ldma_record *record;

	while ((record = ldma_ring_peek(&session->ring, &bytes))) {
		uint64_t time_ns = record->time_ns + (uint64_t)session->wall_offset_ns;

		if (!ldma_batch_add_copy(batch, LDMA_LINK_ETHERNET, time_ns, record->direction,
					 record->frame, record->captured, record->length))
			break;
		ldma_ring_advance(&session->ring, bytes);
	}
	ldma_ring_release(&session->ring);
	return (int)(batch->count - before);
}

int capture_session_poll(struct capture_session *session, struct ldma_batch *batch, int timeout_ms)
{
	struct pollfd ready = {.fd = bpf_map__fd(session->bpf->maps.ring), .events = POLLIN};
	uint32_t *sleeps = &session->bpf->bss->consumer_sleeps;
	int64_t now_ns = ldma_clock_ns(CLOCK_MONOTONIC);
	int64_t deadline_ns = now_ns + timeout_ms * 1000000LL, left_ns;
	int added, err = 0, slice_ms = 1;

	if (batch_is_full(session, batch))
		return -ENOBUFS;
	if (timeout_ms > 0)
		ldma_let_gather(session->drained_ns, session->ring.size, now_ns);
	while (!(added = drain(session, batch)) && err >= 0) {
		left_ns = deadline_ns - ldma_clock_ns(CLOCK_MONOTONIC);
		if (left_ns <= 0)
			break;
		/* The programs do not wake the consumer for a few packets: look again after a while, less often the
		 * quieter it is. */
		if (left_ns < slice_ms * 1000000LL)
			slice_ms = (int)((left_ns + 999999) / 1000000);
		__atomic_store_n(sleeps, 1, __ATOMIC_SEQ_CST);
		err = poll(&ready, 1, slice_ms) < 0 ? -errno : 0;
		__atomic_store_n(sleeps, 0, __ATOMIC_SEQ_CST);
		slice_ms = slice_ms < 16 ? slice_ms * 2 : 16;
	}
	session->drained_ns = batch_is_full(session, batch) ? 0 : ldma_clock_ns(CLOCK_MONOTONIC);
	return added ? added : err == -EINTR ? 0 : err;
}

int capture_session_counters(const struct capture_session *session,
			     struct ldma_capture_counters *ret)
{
	struct ldma_capture_counters *each = calloc((size_t)session->cpus, sizeof(*each));
	uint32_t key = 0;
	int err;

	memset(ret, 0, sizeof(*ret));
	if (!each)
		return -ENOMEM;
	err = bpf_map_lookup_elem(bpf_map__fd(session->bpf->maps.counters), &key, each);
	for (int i = 0; !err && i < session->cpus; i++) {
		ret->frames += each[i].frames;
		ret->roce += each[i].roce;
		ret->matched += each[i].matched;
		ret->sampled_out += each[i].sampled_out;
		ret->recorded += each[i].recorded;
		ret->ring_dropped += each[i].ring_dropped;
		ret->unreadable += each[i].unreadable;
		ret->bytes += each[i].bytes;
	}
	free(each);
	return err;
}
