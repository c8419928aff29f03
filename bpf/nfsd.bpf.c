/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs follow each call through the kernel's NFS server: from its arrival, through the thread that serves it and
 * the store, to its reply. They only count: nothing is sent to user space, and nothing in the kernel changes.
 *
 * A thread of the kernel serves one call at a time, so what is known of a call is kept under its thread. A call over
 * RDMA waits for a thread in a Receive's context, and what is known of it until then is kept under that. */
#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "bpf/nfsd_connections.h"

/* What is known of the call that a thread serves. */
struct call {
	__u64 transport;  /* by which `arrived_ns` came */
	__u64 arrived_ns; /* 0: not known */
	__u64 waited_ns;  /* for a thread; a call whose data was fetched has waited twice */
	__u64 fetched_ns; /* how long its data took; 0: there was none */
	__u64 began_ns;   /* 0: the thread serves no call */
	__u64 sent_ns;    /* 0: there was no reply */
	__u64 storage_ns; /* when the access began; 0: there is none */
	__u64 blocked_ns; /* since when it waits for the send queue; 0: it does not */
	__u64 read_bytes, written_bytes;
	__u32 connection, session; /* their places; LDMA_MONITOR_NONE: none */
	__u32 credits_asked;
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, LDMA_NFSD_THREADS);
	__type(key, __u32);
	__type(value, struct call);
} calls SEC(".maps");

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

__u32 threads; /* of nfsd, at its last call */

static __always_inline struct call *own_call(bool is_needed)
{
	__u32 thread = (__u32)bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&calls, &thread), none = {0};

	if (call || !is_needed)
		return call;
	bpf_map_update_elem(&calls, &thread, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&calls, &thread);
}

/* Returns the call that this thread serves for nfsd, with its connection, or NULL. */
static __always_inline struct call *nfsd_call(struct ldma_nfsd_connection **ret)
{
	struct call *call = own_call(false);

	if (!call || !call->began_ns || call->connection == LDMA_MONITOR_NONE)
		return NULL;
	*ret = bpf_map_lookup_elem(&connections, &call->connection);
	return *ret ? call : NULL;
}

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
	struct call *call;
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
	struct call *call;
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

SEC("fentry/svc_process")
int call_begins(__u64 *ctx)
{
	struct svc_rqst *rqstp = (void *)ctx[0];
	struct call *call = own_call(true);

	if (!call) {
		__sync_fetch_and_add(&losses.calls, 1);
		return 0;
	}
	if (call->transport != (__u64)BPF_CORE_READ(rqstp, rq_xprt))
		call->arrived_ns = 0;
	call->began_ns = bpf_ktime_get_ns();
	call->sent_ns = 0;
	call->storage_ns = 0;
	call->blocked_ns = 0;
	call->read_bytes = 0;
	call->written_bytes = 0;
	call->connection = LDMA_MONITOR_NONE;
	call->session = LDMA_MONITOR_NONE;
	return 0;
}

/* The call is one for nfsd, and not for another service of the kernel. */
SEC("fentry/nfsd_dispatch")
int nfsd_begins(__u64 *ctx)
{
	struct svc_rqst *rqstp = (void *)ctx[0];
	struct call *call = own_call(false);
	struct ldma_nfsd_connection *connection;
	__u32 index;

	if (!call || !call->began_ns || call->connection != LDMA_MONITOR_NONE)
		return 0;
	threads = BPF_CORE_READ(rqstp, rq_server, sv_nrthreads);
	connection = place_connection(BPF_CORE_READ(rqstp, rq_xprt), &index);
	if (!connection)
		return 0;
	call->connection = index;
	__sync_fetch_and_add(&connection->executing, 1);
	if (!call->arrived_ns)
		return 0;
	if (call->credits_asked)
		connection->credits_asked = call->credits_asked;
	add_time(&connection->thread_waits, call->waited_ns);
	if (call->fetched_ns)
		add_time(&connection->fetches, call->fetched_ns);
	return 0;
}

/* The session is taken from nfsd's own, once it has accepted the call: ids that a client makes up take no place. */
SEC("fexit/nfsd4_sequence")
int sequence_ends(__u64 *ctx)
{
	struct nfsd4_compound_state *state = (void *)ctx[1];
	__be32 status = (__be32)ctx[3];
	struct ldma_nfsd_connection *connection;
	const struct nfsd4_session *found;
	struct ldma_nfsd_session *session;
	struct call *call = nfsd_call(&connection);
	__u64 id[2] = {0};

	if (!call || status || call->session != LDMA_MONITOR_NONE)
		return 0;
	found = BPF_CORE_READ(state, session);
	if (!found || BPF_CORE_READ_INTO(&id, found, se_sessionid.data))
		return 0;
	call->session = place_session(id);
	session = bpf_map_lookup_elem(&sessions, &call->session);
	if (session)
		__sync_fetch_and_add(&session->executing, 1);
	return 0;
}

static __always_inline int storage_begins(void)
{
	struct ldma_nfsd_connection *connection;
	struct call *call = nfsd_call(&connection);

	if (call)
		call->storage_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline struct call *storage_ends(void)
{
	struct ldma_nfsd_connection *connection;
	struct call *call = nfsd_call(&connection);

	if (!call)
		return NULL;
	if (call->storage_ns)
		add_time(&connection->storage, bpf_ktime_get_ns() - call->storage_ns);
	call->storage_ns = 0;
	return call;
}

SEC("tp_btf/nfsd_read_splice")
int read_by_pages(__u64 *ctx)
{
	(void)ctx;
	return storage_begins();
}

SEC("tp_btf/nfsd_read_vector")
int read_into_memory(__u64 *ctx)
{
	(void)ctx;
	return storage_begins();
}

SEC("tp_btf/nfsd_write_opened")
int write_begins(__u64 *ctx)
{
	(void)ctx;
	return storage_begins();
}

SEC("tp_btf/nfsd_read_io_done")
int read_ends(__u64 *ctx)
{
	__u32 bytes = (__u32)ctx[3];
	struct call *call = storage_ends();

	if (call)
		call->read_bytes += bytes;
	return 0;
}

SEC("tp_btf/nfsd_write_io_done")
int write_ends(__u64 *ctx)
{
	__u32 bytes = (__u32)ctx[3];
	struct call *call = storage_ends();

	if (call)
		call->written_bytes += bytes;
	return 0;
}

SEC("fentry/nfsd_commit")
int commit_begins(__u64 *ctx)
{
	(void)ctx;
	return storage_begins();
}

SEC("fexit/nfsd_commit")
int commit_ends(__u64 *ctx)
{
	(void)ctx;
	storage_ends();
	return 0;
}

/* RDMA: the thread waits for room in the send queue. */
SEC("tp_btf/svcrdma_sq_full")
int send_queue_full(__u64 *ctx)
{
	struct call *call = own_call(true);

	(void)ctx;
	if (call && !call->blocked_ns)
		call->blocked_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/svcrdma_sq_retry")
int send_queue_has_room(__u64 *ctx)
{
	void *rdma = (void *)ctx[0];
	struct call *call = own_call(false);
	struct ldma_nfsd_connection *connection;
	__u32 index;

	if (!call || !call->blocked_ns)
		return 0;
	connection = connection_of((__u64)rdma, &index);
	if (connection)
		add_time(&connection->send_waits, bpf_ktime_get_ns() - call->blocked_ns);
	call->blocked_ns = 0;
	return 0;
}

SEC("tp_btf/svcrdma_rwctx_empty")
int context_made(__u64 *ctx)
{
	void *rdma = (void *)ctx[0];
	__u32 index;
	struct ldma_nfsd_connection *connection = connection_of((__u64)rdma, &index);

	if (connection)
		__sync_fetch_and_add(&connection->contexts_made, 1);
	return 0;
}

SEC("tp_btf/svcrdma_rq_post_err")
int receive_failed(__u64 *ctx)
{
	void *rdma = (void *)ctx[0];
	__u32 index;
	struct ldma_nfsd_connection *connection = connection_of((__u64)rdma, &index);

	if (connection)
		__sync_fetch_and_add(&connection->receives_failed, 1);
	return 0;
}

SEC("tp_btf/svc_send")
int reply_sent(__u64 *ctx)
{
	int status = (int)ctx[1];
	struct ldma_nfsd_connection *connection;
	struct call *call = nfsd_call(&connection);

	if (call && status >= 0)
		call->sent_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void add_call(struct ldma_nfsd_times *to, const struct call *call)
{
	to->counts.last_ns = call->sent_ns;
	if (call->read_bytes)
		__sync_fetch_and_add(&to->counts.read_bytes, call->read_bytes);
	if (call->written_bytes)
		__sync_fetch_and_add(&to->counts.written_bytes, call->written_bytes);
	add_time(to, call->sent_ns - (call->arrived_ns ? call->arrived_ns : call->began_ns));
}

static __always_inline void end_call(const struct call *call,
				     struct ldma_nfsd_connection *connection)
{
	struct ldma_nfsd_session *session = bpf_map_lookup_elem(&sessions, &call->session);
	__u32 word = call->connection / 64;

	__sync_fetch_and_add(&connection->executing, -1);
	__sync_fetch_and_add(&connection->serving_ns, bpf_ktime_get_ns() - call->began_ns);
	if (session)
		__sync_fetch_and_add(&session->executing, -1);
	if (!call->sent_ns)
		return;
	if (!call->arrived_ns)
		__sync_fetch_and_add(&losses.early, 1);
	add_call(&connection->calls, call);
	if (!session)
		return;
	add_call(&session->calls, call);
	if (word < LDMA_MONITOR_CONNECTIONS / 64)
		__sync_fetch_and_or(&session->connections[word], 1ull << call->connection % 64);
}

SEC("fexit/svc_process")
int call_ends(__u64 *ctx)
{
	struct ldma_nfsd_connection *connection;
	struct call *call = nfsd_call(&connection);

	(void)ctx;
	if (call)
		end_call(call, connection);
	else
		call = own_call(false);
	if (call) {
		call->began_ns = 0;
		call->transport = 0;
		call->credits_asked = 0;
	}
	return 0;
}

/* The kernel frees a transport. Its address may be that of another one soon. */
SEC("tp_btf/svc_xprt_free")
int connection_ends(__u64 *ctx)
{
	void *transport = (void *)ctx[0];
	__u64 key = (__u64)transport;
	__u32 index;
	struct ldma_nfsd_connection *connection = connection_of(key, &index);

	if (!connection)
		return 0;
	bpf_map_delete_elem(&connections_by_transport, &key);
	connection->ended_ns = bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
