/* SPDX-License-Identifier: BSD-2-Clause */
/* USDT probes of the provider livedma, for bpftrace and perf. Each has a semaphore, which the kernel raises while a
 * tool listens: until then a probe is one comparison, and its arguments are not computed. LDMA_NO_PROBES leaves them
 * out. */
#ifndef LDMA_PROBE_H
#define LDMA_PROBE_H

#ifdef LDMA_NO_PROBES

#define LDMA_PROBE_DEFINE(name) _Static_assert(1, #name)
#define LDMA_PROBE_IS_ON(name) 0
#define LDMA_PROBE(name, ...)                                                                      \
	do {                                                                                       \
	} while (0)

#else

#define _SDT_HAS_SEMAPHORES 1
#define SDT_USE_VARIADIC
#include <sys/sdt.h>

/* Defines a probe's semaphore: once, in the file that has the probe. */
#define LDMA_PROBE_DEFINE(name)                                                                    \
	__extension__ unsigned short livedma_##name##_semaphore                                    \
		__attribute__((section(".probes"), visibility("hidden")))

#define LDMA_PROBE_IS_ON(name) __builtin_expect(livedma_##name##_semaphore != 0, 0)

#define LDMA_PROBE(name, ...)                                                                      \
	do {                                                                                       \
		if (LDMA_PROBE_IS_ON(name))                                                        \
			STAP_PROBEV(livedma, name, __VA_ARGS__);                                   \
	} while (0)

#endif
#endif
