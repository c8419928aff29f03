/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Numbers of communication management (IBA 12.6, 13.4) that C and BPF know. All messages there are, with the same
 * names, are in livedma.wire.cm; tests/wire/test_numbers.py compares. */
#ifndef LDMA_WIRE_CM_H
#define LDMA_WIRE_CM_H

enum { LDMA_CM_CLASS = 0x07 }; /* of management */

/* The attribute of a MAD, which says what message it is. */
enum ldma_cm_message {
	LDMA_CM_REQ = 0x10,
	LDMA_CM_REJ = 0x12,
	LDMA_CM_REP = 0x13,
	LDMA_CM_DREQ = 0x15,
	LDMA_CM_DREP = 0x16,
	LDMA_CM_SIDR_REQ = 0x17,
	LDMA_CM_SIDR_REP = 0x18,
};

#endif
