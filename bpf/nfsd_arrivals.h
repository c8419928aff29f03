/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs of nfsd.bpf.c that see calls arrive, until a thread has them. A call over TCP lies in its socket; one over
 * RDMA lies in a Receive's context, and what is known of it until then is kept under that. */
#ifndef LDMA_NFSD_ARRIVALS_H
#define LDMA_NFSD_ARRIVALS_H

#include "bpf/nfsd_calls.h"

/* What is known of a call over RDMA before a thread has it, and that it is in flight. */
struct received {
	__u64 transport;
	__u64 arrived_ns;
	__u64 waited_ns;
	__u64 fetch_ns, fetched_ns; /* when the fetch of its data began and ended; 0: not yet */
	__u32 credits_asked;
	__u32 connection; /* in whose `in_flight` it counts; LDMA_MONITOR_NONE: in none */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LDMA_NFSD_RECEIVED);
	__type(key, __u64);
	__type(value, struct received);
} received SEC(".maps");

/* TCP: the socket says that bytes have come. Its lock is held, so this is the only writer. */
SEC("fentry/svc_data_ready")
int bytes_arrive(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct ldma_nfsd_connection *connection;
	struct ldma_nfsd_arrival *arrival;
	__u32 index, newest;

	/* A struct svc_sock begins with its struct svc_xprt. */
	connection = connection_of((__u64)BPF_CORE_READ(sk, sk_user_data), &index);
	if (!connection)
		return 0;
	newest = connection->newest;
	if (newest - connection->oldest >= LDMA_NFSD_ARRIVALS)
		newest--; /* no room: bytes that came last count as one arrival */
	arrival = &connection->arrivals[newest % LDMA_NFSD_ARRIVALS];
	arrival->at_ns = bpf_ktime_get_ns();
	arrival->sequence = BPF_CORE_READ((const struct tcp_sock *)sk, rcv_nxt);
	connection->newest = newest + 1;
	return 0;
}

/* Returns when the bytes that were read last had arrived; 0: not known. */
static __always_inline __u64 when_read(struct ldma_nfsd_connection *connection,
				       const struct svc_sock *from)
{
	const struct tcp_sock *socket = (const void *)BPF_CORE_READ(from, sk_sk);
	__u32 read = BPF_CORE_READ(socket, copied_seq);

	for (__u32 i = 0; i < LDMA_NFSD_ARRIVALS; i++) {
		__u32 oldest = connection->oldest;
		const struct ldma_nfsd_arrival *arrival =
			&connection->arrivals[oldest % LDMA_NFSD_ARRIVALS];

		if (oldest == connection->newest)
			break;
		if ((__s32)(arrival->sequence - read) >= 0)
			return arrival->at_ns;
		connection->oldest = oldest + 1;
	}
	return 0;
}

/* TCP: a thread has read from the socket, maybe a whole call, and lets others read. */
SEC("fentry/svc_xprt_received")
int thread_has_read(__u64 *ctx)
{
	struct svc_xprt *transport = (void *)ctx[0];
	struct ldma_nfsd_connection *connection;
	struct served_call *call;
	__u32 index;

	connection = connection_of((__u64)transport, &index);
	if (!connection || connection->kind != LDMA_NFSD_TCP)
		return 0;
	call = own_call(true);
	if (!call)
		return 0;
	call->transport = (__u64)transport;
	call->arrived_ns = when_read(connection, (const struct svc_sock *)transport);
	call->waited_ns = call->arrived_ns ? bpf_ktime_get_ns() - call->arrived_ns : 0;
	call->fetched_ns = 0;
	return 0;
}

static __always_inline __u64 context_of(const struct ib_wc *wc, __u32 offset)
{
	return (__u64)BPF_CORE_READ(wc, wr_cqe) - offset;
}

/* RDMA: a Receive has completed. */
SEC("fentry/svc_rdma_wc_receive")
int receive_done(__u64 *ctx)
{
	struct ib_cq *cq = (void *)ctx[0];
	struct ib_wc *wc = (void *)ctx[1];
	struct received got = {.connection = LDMA_MONITOR_NONE};
	struct ldma_nfsd_connection *connection;
	__u64 context;
	__u32 index;

	if (BPF_CORE_READ(wc, status) != IB_WC_SUCCESS)
		return 0;
	context = context_of(wc, bpf_core_field_offset(struct svc_rdma_recv_ctxt, rc_cqe));
	got.transport = (__u64)BPF_CORE_READ(cq, cq_context);
	got.arrived_ns = bpf_ktime_get_ns();
	connection = connection_of(got.transport, &index);
	if (connection)
		got.connection = index;
	if (bpf_map_update_elem(&received, &context, &got, BPF_NOEXIST)) {
		__sync_fetch_and_add(&losses.calls, 1);
		return 0;
	}
	if (connection &&
	    __sync_fetch_and_add(&connection->in_flight, 1) + 1 >= connection->credits_granted)
		__sync_fetch_and_add(&connection->last_credits, 1);
	return 0;
}

/* RDMA: the kernel gives a Receive's context back, with whatever came in it. */
static __always_inline void forget_received(__u64 context)
{
	struct received *got = bpf_map_lookup_elem(&received, &context);
	struct ldma_nfsd_connection *connection;
	__u64 transport;
	__u32 index;

	if (!got)
		return;
	transport = got->transport;
	index = got->connection;
	if (bpf_map_delete_elem(&received, &context))
		return;
	connection = bpf_map_lookup_elem(&connections, &index);
	if (connection && connection->transport == transport)
		__sync_fetch_and_add(&connection->in_flight, -1);
}

SEC("fentry/svc_rdma_release_ctxt")
int context_released(__u64 *ctx)
{
	void *context = (void *)ctx[1];
	forget_received((__u64)context);
	return 0;
}

SEC("fentry/svc_rdma_recv_ctxt_put")
int context_put(__u64 *ctx)
{
	void *context = (void *)ctx[1];
	forget_received((__u64)context);
	return 0;
}

/* RDMA: a thread has read the header of a call. */
SEC("tp_btf/svcrdma_decode_rqst")
int header_read(__u64 *ctx)
{
	void *context = (void *)ctx[0];
	__be32 *header = (void *)ctx[1];
	__u64 key = (__u64)context;
	struct received *got = bpf_map_lookup_elem(&received, &key);
	__be32 credits = 0;

	if (!got)
		return 0;
	bpf_probe_read_kernel(&credits, sizeof(credits), header + 2);
	got->credits_asked = bpf_ntohl(credits);
	return 0;
}

/* RDMA: a thread begins to fetch what the client writes, and does not wait for it. */
SEC("fentry/svc_rdma_process_read_list")
int fetch_begins(__u64 *ctx)
{
	void *context = (void *)ctx[2];
	__u64 key = (__u64)context;
	struct received *got = bpf_map_lookup_elem(&received, &key);

	if (!got)
		return 0;
	got->fetch_ns = bpf_ktime_get_ns();
	got->waited_ns = got->fetch_ns - got->arrived_ns;
	return 0;
}

SEC("fentry/svc_rdma_wc_read_done")
int fetch_ends(__u64 *ctx)
{
	struct ib_wc *wc = (void *)ctx[1];
	__u32 offset = bpf_core_field_offset(struct svc_rdma_recv_ctxt, rc_cc) +
		       bpf_core_field_offset(struct svc_rdma_chunk_ctxt, cc_cqe);
	__u64 key = context_of(wc, offset);
	struct received *got = bpf_map_lookup_elem(&received, &key);

	if (got)
		got->fetched_ns = bpf_ktime_get_ns();
	return 0;
}

/* RDMA: a thread has a call, or has begun to fetch one's data, or has found none. */
SEC("fexit/svc_rdma_recvfrom")
int call_received(__u64 *ctx)
{
	struct svc_rqst *rqstp = (void *)ctx[0];
	int bytes = (int)ctx[1];
	struct received *got;
	struct served_call *call;
	__u64 context, now_ns = bpf_ktime_get_ns();

	if (bytes <= 0)
		return 0;
	context = (__u64)BPF_CORE_READ(rqstp, rq_xprt_ctxt);
	call = own_call(true);
	got = bpf_map_lookup_elem(&received, &context);
	if (!call || !got)
		return 0;
	call->transport = got->transport;
	call->arrived_ns = got->arrived_ns;
	call->credits_asked = got->credits_asked;
	call->fetched_ns = 0;
	call->waited_ns = now_ns - got->arrived_ns;
	if (got->fetch_ns && got->fetched_ns) {
		call->fetched_ns = got->fetched_ns - got->fetch_ns;
		call->waited_ns = got->waited_ns + (now_ns - got->fetched_ns);
	}
	return 0;
}

#endif
