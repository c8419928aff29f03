/* SPDX-License-Identifier: BSD-2-Clause */
/* A check that ends the fuzzer with a finding. */
#ifndef LDMA_FUZZ_CHECK_H
#define LDMA_FUZZ_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
