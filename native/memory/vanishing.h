/* Copies to and from memory that another thread may unmap or protect at that very moment: such a copy fails, and the
 * process lives.
 *
 * On x86-64 the processor copies and a handler of SIGSEGV and SIGBUS ends copies that fault; everything else it hands on to
 * the handlers that were there before. Where that cannot be relied on (another machine, another handler in its place, a
 * thread that blocks the signals) the kernel copies (core/guarded.h), which takes a microsecond more. */
#ifndef LDMA_VANISHING_H
#define LDMA_VANISHING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether ldma_vanishing_compare_exchange is there. */
#ifdef __x86_64__
#define LDMA_VANISHING_ATOMICS true
#else
#define LDMA_VANISHING_ATOMICS false
#endif

/* Takes the signals, once for the process. Any thread may call it, any number of times. */
void ldma_vanishing_start(void);

/* Has somebody put another handler in the place of ours? Then it is not relied on any more. Called now and then. */
void ldma_vanishing_verify(void);

/* False if memory is not there or may not be used that way; a part may have been copied. Eight bytes that are aligned in
 * memory are copied at once. */
bool ldma_vanishing_load(void *buf, const void *memory, size_t length);
bool ldma_vanishing_store(void *memory, const void *buf, size_t length);
bool ldma_vanishing_compare_exchange(uint64_t *memory, uint64_t *expected, uint64_t desired,
				     bool *ret_done);

#endif
