/* SPDX-License-Identifier: BSD-2-Clause */
/* Tells whether the peer or the host uses a range of a region right now. It is asked before memory is taken away, so it
 * walks all queue pairs; packets keep no account for it. */
#ifndef LDMA_IN_USE_H
#define LDMA_IN_USE_H

#include "device/device.h"

enum ldma_user {
	LDMA_USER_PEER = 1, /* a WRITE that has begun, a READ whose responses are not all out */
	LDMA_USER_HOST = 2, /* a posted Receive, a send request that has not completed */
};

/* Returns a mask of enum ldma_user for length bytes from va on of the region with this key. */
uint32_t ldma_device_uses(const struct ldma_device *device, uint32_t key, uint64_t va,
			  uint64_t length);

#endif
