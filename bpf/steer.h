/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The constants by which processes share an address, used by the steering programs and by user space.
 *
 * Each process has a slot. Its socket is in `sockets` at that place, until the kernel removes it because it was closed;
 * the numbers of its queue pairs and its IDs of communication have the slot in their top 8 bits.
 */
#ifndef LDMA_STEER_H
#define LDMA_STEER_H

#define LDMA_STEER_SLOTS 256
#define LDMA_STEER_QP_SHIFT 16 /* slot << this is the first number of its queue pairs */

/* The version of the pinned maps: processes of different versions do not share. */
#define LDMA_STEER_VERSION "1"

#endif
