/* Packets that came to the wrong one of the processes that share an address, because the kernel merged them into a train
 * of its: they go through loopback once more, alone, and find their owner. */
#ifndef LDMA_STRAY_H
#define LDMA_STRAY_H

#include <stdint.h>

/* The descriptor, or a negative errno: it needs CAP_NET_RAW. */
int ldma_stray_open(int ip_version);

/* Sends the packet at its IP header, IPv6 without extensions, and sets its checksums for that. A loss on the way is one
 * like any other: who sent the packet sends it again. */
void ldma_stray_send(int fd, uint8_t *l3, uint32_t length);

#endif
