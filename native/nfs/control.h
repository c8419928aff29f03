/* SPDX-License-Identifier: BSD-2-Clause */
/* Control traffic: the calls with which clients and sessions come, stay and go. It is NULL, SEQUENCE alone (which renews
 * a lease), and the operations that stand alone because they make or end a session. None of them touches a file, so
 * threads that are kept for them are soon free again. */
#ifndef LDMA_CONTROL_H
#define LDMA_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

/* Returns whether the whole RPC message is control traffic. What it cannot read is not: its sender gets the answer that
 * it deserves from the other threads. */
bool ldma_is_control(const uint8_t *message, uint64_t length);

#endif
