/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies to and from memory that another thread may unmap or protect at that very moment: such a copy fails, and the
 * process lives. Any thread may call these functions.
 *
 * On x86-64 the processor copies, and a handler of SIGSEGV and SIGBUS ends copies that fault; it hands other signals on
 * to the handlers that were there before. Where that cannot be relied on (another machine, another handler in its
 * place, a thread that blocks the signals) the kernel copies (memory/guarded.h), which takes a microsecond more. */
#ifndef LDMA_VANISHING_H
#define LDMA_VANISHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether ldma_vanishing_compare_exchange works on this machine. */
#ifdef __x86_64__
#define LDMA_VANISHING_ATOMICS true
#else
#define LDMA_VANISHING_ATOMICS false
#endif

/* Installs the handler, once for the process. It may be called any number of times. */
void ldma_vanishing_start(void);

/* Checks that the handler is still installed; if another has replaced it, the kernel copies from then on. Called now
 * and then. */
void ldma_vanishing_verify(void);

/* Return false if memory is not there or may not be used that way; a part may have been copied. Eight bytes that are
 * aligned in memory are copied at once. */
bool ldma_vanishing_load(void *buf, const void *memory, size_t length);
bool ldma_vanishing_store(void *memory, const void *buf, size_t length);
bool ldma_vanishing_compare_exchange(uint64_t *memory, uint64_t *expected, uint64_t desired,
				     bool *ret_done);

#endif
