/* SPDX-License-Identifier: BSD-2-Clause */
/* A check that ends a test, also where assert() is compiled out. */
#ifndef LDMA_EXPECT_H
#define LDMA_EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

#endif
