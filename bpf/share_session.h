/* SPDX-License-Identifier: BSD-2-Clause */
/* The user space side of sharing an address: a process finds or pins the maps, takes a slot, claims ports and leaves.
 *
 * The maps are pinned in one directory per address and network namespace, `sockets` last, so that a directory without
 * it is what an interrupted start left behind. A caller that joins, claims or leaves holds a lock of its own making,
 * across processes. Functions return 0 or a negative errno.
 */
#ifndef LDMA_SHARE_SESSION_H
#define LDMA_SHARE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "bpf/steer.h"

#define LDMA_SHARE_SOCKETS "sockets-" LDMA_STEER_VERSION /* the name of the pin */

struct share_session;

/* Opens what is pinned in the directory. address (IPv4, as on the wire; else 0) and interface are those of the packet
 * socket that is to be filtered. -ENOENT: there is no `sockets` of this version. */
int share_open(const char *directory, uint32_t address, uint32_t interface,
	       struct share_session **ret);

/* Does the same, and pins new maps in the directory, which exists and is empty. Pins may stay when it fails. */
int share_start(const char *directory, uint32_t address, uint32_t interface,
		struct share_session **ret);
void share_close(struct share_session *session); /* accepts NULL; the slot stays */

/* Takes the lowest free slot for the socket, which is bound with SO_REUSEPORT, and steers its group. Returns the slot;
 * -EUSERS: all are taken. *ret_filter becomes a program by which a packet socket receives what is for the slot; the
 * caller closes it. This is a join of struct ldma_share. */
int share_join(void *session, int socket_fd, int *ret_filter);

/* share_claim makes requests to the service, an ID of 32 bits, come to this process from now on; share_release ends
 * that. -EADDRINUSE: they go to another living process. */
int share_claim(struct share_session *session, uint32_t service);
int share_release(struct share_session *session, uint32_t service); /* 0 also without a claim */

/* Gives the slot and all claims back, before or after the socket was closed; not those that other processes have by
 * now. */
void share_leave(struct share_session *session);

/* Returns how many slots are taken by living processes. */
uint32_t share_count(const struct share_session *session);

#endif
