/* The completer: takes acknowledges and responses, completes send requests in their order. */
#ifndef LDMA_COMPLETER_H
#define LDMA_COMPLETER_H

#include "qp.h"

/* packet is a response to an RC queue pair that may receive. */
void ldma_completer_receive(struct ldma_qp *qp, const struct ldma_packet *packet, uint64_t now_ns);

#endif
