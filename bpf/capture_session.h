/* SPDX-License-Identifier: BSD-2-Clause */
/* A live capture: the programs of capture.bpf.c, loaded once, attached to one interface after another.
 *
 * Programs attach as BPF links, which vanish with the process however it ends. Functions return 0 or a negative errno;
 * where they take a struct capture_error, it then holds one sentence that says what is wrong and what to do.
 * One thread uses a session at a time.
 */
#ifndef LDMA_CAPTURE_SESSION_H
#define LDMA_CAPTURE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/capture_config.h"
#include "bpf/record.h"
#include "capture/batch.h"

#define CAPTURE_RING_BYTES_DEFAULT (16u << 20)

struct capture_error {
	char text[320];
};

/* The way in which programs are attached now. */
enum capture_mode {
	CAPTURE_DETACHED,
	CAPTURE_XDP_NATIVE,
	CAPTURE_XDP_GENERIC,
	CAPTURE_TCX,    /* a BPF link */
	CAPTURE_CLSACT, /* a filter, on kernels before 6.6: outlives a process that is killed */
};

struct capture_options {
	struct ldma_capture_config config; /* wake_bytes is computed */
	uint32_t ring_bytes;               /* a power of two of at least a page; 0: the default */
	bool rx, tx;
	bool rx_by_tc;    /* ingress through tc; otherwise XDP */
	bool native_only; /* XDP: -EOPNOTSUPP rather than generic mode */
	bool replace; /* take the place of an XDP program that is attached without a link; give it back */
	bool without_links; /* tc: as on kernels before 6.6 */
	bool verbose;       /* libbpf's messages and the verifier's log go to stderr */
};

/* The XDP program that is in the way. */
struct capture_foreign {
	uint32_t id; /* 0: none */
	bool by_link;
	char name[16];
};

struct capture_session;

/* Loads the programs. -EPERM without the privilege. */
int capture_session_open(const struct capture_options *options, struct capture_session **ret,
			 struct capture_error *error);

/* Attaches to an interface of this thread's network namespace. If another XDP program is there: -EBUSY, nothing is
 * changed, and capture_session_foreign() tells which. On any failure nothing stays attached. */
int capture_session_attach(struct capture_session *session, uint32_t ifindex,
			   struct capture_error *error);

/* Detaches, and puts a replaced program back (error is filled if that failed). What is in the ring stays there. */
int capture_session_detach(struct capture_session *session, struct capture_error *error);
void capture_session_close(struct capture_session *session); /* detaches; accepts NULL */

enum capture_mode capture_session_rx_mode(const struct capture_session *session);
enum capture_mode capture_session_tx_mode(const struct capture_session *session);
const struct capture_foreign *capture_session_foreign(const struct capture_session *session);

/* Adds what is in the ring to the batch until the batch is full; the rest waits in the ring. If there is nothing,
 * waits until there is, a signal comes, or timeout_ms have passed. Returns the number of packets added.
 * Calls that follow each other within a millisecond are slowed down to that, unless the batch was filled.
 * -ENOBUFS if the batch has no room for a single frame. Times are CLOCK_REALTIME. */
int capture_session_poll(struct capture_session *session, struct ldma_batch *batch, int timeout_ms);

/* Adds up what the CPUs counted since the programs were loaded. */
int capture_session_counters(const struct capture_session *session,
			     struct ldma_capture_counters *ret);

#endif
