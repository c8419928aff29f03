/* Who uses a range of a region right now: asked before memory is taken away, so it may take its time, and costs packets
 * nothing. */
#ifndef LDMA_IN_USE_H
#define LDMA_IN_USE_H

#include "device.h"

enum ldma_user {
	LDMA_USER_PEER = 1, /* a WRITE that has begun, a READ whose responses are not all out */
	LDMA_USER_HOST = 2, /* a Receive that is posted, a request that has not completed */
};

/* A mask of enum ldma_user. */
uint32_t ldma_device_uses(const struct ldma_device *device, uint32_t key, uint64_t va,
			  uint64_t length);

#endif
