/* SPDX-License-Identifier: BSD-2-Clause */
/* Strays are packets that reached the wrong one of the processes that share an address, because the kernel merged them
 * into a train of that process. The port sends each through loopback once more, alone, and so it reaches its owner. */
#ifndef LDMA_STRAY_H
#define LDMA_STRAY_H

#include <stdint.h>

/* Returns the descriptor, which the caller closes, or a negative errno. It needs CAP_NET_RAW. */
int ldma_stray_open(int ip_version);

/* Sends the packet at its IP header (IPv6 without extensions), after setting its checksums. A loss on the way is like
 * any other: the packet's sender sends it again. */
void ldma_stray_send(int fd, uint8_t *l3, uint32_t length);

#endif
