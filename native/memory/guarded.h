/* SPDX-License-Identifier: BSD-2-Clause */
/* A copy from or to memory that may be gone, such as pages of a file that was truncated. To touch those would end the
 * process with SIGBUS; here the kernel copies them, or says that it cannot. Any thread may call it. */
#ifndef LDMA_GUARDED_H
#define LDMA_GUARDED_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether all was copied; if not, a part may have been. It takes a microsecond and a half. */
bool ldma_guarded_copy(void *to, const void *from, size_t length);

#endif
