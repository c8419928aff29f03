/* SPDX-License-Identifier: BSD-2-Clause */
/* The completer takes the acknowledgements and responses of an RC queue pair and completes its send requests in the
 * order in which they were posted. The device calls it for each response packet. */
#ifndef LDMA_COMPLETER_H
#define LDMA_COMPLETER_H

#include "device/qp.h"

/* Takes one packet, which is a response to an RC queue pair in a state that may receive. */
void ldma_completer_receive(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns);

#endif
