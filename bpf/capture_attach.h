/* SPDX-License-Identifier: BSD-2-Clause */
/* How sessions attach their programs to the hooks of an interface; private to capture_*.c and monitor_*.c. Functions
 * return and fill errors as in capture_session.h. */
#ifndef LDMA_CAPTURE_ATTACH_H
#define LDMA_CAPTURE_ATTACH_H

#include "bpf/capture_session.h"

/* One program on one hook of one interface. */
struct attachment {
	enum capture_mode mode;
	uint32_t ifindex;
	int link_fd;        /* -1: none */
	int replaced_fd;    /* XDP: the program to put back; -1: none */
	uint32_t xdp_flags; /* XDP: the mode it was attached in */
	bool egress;        /* clsact */
	bool made_qdisc;    /* clsact: the interface had no such qdisc before */
	uint32_t handle, priority;
};

__attribute__((format(printf, 3, 4))) int capture_fail(struct capture_error *error, int err,
						       const char *format, ...);

int attach_xdp(int prog_fd, uint32_t ifindex, const struct capture_options *options,
	       struct capture_foreign *foreign, struct attachment *ret,
	       struct capture_error *error);
int attach_tc(int prog_fd, uint32_t ifindex, bool egress, const struct capture_options *options,
	      struct attachment *ret, struct capture_error *error);
int detach(struct attachment *attachment, struct capture_error *error);

#endif
