/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The programs follow each call through the kernel's NFS server: from its arrival, through the thread that serves it and
 * the store, to its reply. They only count: nothing is sent to user space, and nothing in the kernel changes.
 * nfsd_arrivals.h has those that see calls arrive. */
#include <stdbool.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "bpf/nfsd_arrivals.h"

__u32 threads; /* of nfsd, at its last call */

SEC("fentry/svc_process")
int call_begins(__u64 *ctx)
{
	struct svc_rqst *rqstp = (void *)ctx[0];
	struct served_call *call = own_call(true);

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
	struct served_call *call = own_call(false);
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
	struct served_call *call = nfsd_call(&connection);
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
	struct served_call *call = nfsd_call(&connection);

	if (call)
		call->storage_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline struct served_call *storage_ends(void)
{
	struct ldma_nfsd_connection *connection;
	struct served_call *call = nfsd_call(&connection);

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
	struct served_call *call = storage_ends();

	if (call)
		call->read_bytes += bytes;
	return 0;
}

SEC("tp_btf/nfsd_write_io_done")
int write_ends(__u64 *ctx)
{
	__u32 bytes = (__u32)ctx[3];
	struct served_call *call = storage_ends();

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
	struct served_call *call = own_call(true);

	(void)ctx;
	if (call && !call->blocked_ns)
		call->blocked_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/svcrdma_sq_retry")
int send_queue_has_room(__u64 *ctx)
{
	void *rdma = (void *)ctx[0];
	struct served_call *call = own_call(false);
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
	struct served_call *call = nfsd_call(&connection);

	if (call && status >= 0)
		call->sent_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void add_call(struct ldma_nfsd_times *to, const struct served_call *call)
{
	to->counts.last_ns = call->sent_ns;
	if (call->read_bytes)
		__sync_fetch_and_add(&to->counts.read_bytes, call->read_bytes);
	if (call->written_bytes)
		__sync_fetch_and_add(&to->counts.written_bytes, call->written_bytes);
	add_time(to, call->sent_ns - (call->arrived_ns ? call->arrived_ns : call->began_ns));
}

static __always_inline void end_call(const struct served_call *call,
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
	struct served_call *call = nfsd_call(&connection);

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
