/* Copying from or to memory that may be gone: pages of a file which somebody has cut short. To touch those would end the
 * process with SIGBUS; the system copies them or says that it cannot. */
#ifndef LDMA_GUARDED_H
#define LDMA_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

/* Whether all was copied; if not, some may have been. It takes a microsecond and a half. */
bool ldma_guarded_copy(void *to, const void *from, size_t length);

#endif
