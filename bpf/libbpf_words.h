/* SPDX-License-Identifier: BSD-2-Clause */
/* Sets what libbpf prints by itself: nothing, since the callers report errors; or its warnings, to stderr. */
#ifndef LDMA_LIBBPF_WORDS_H
#define LDMA_LIBBPF_WORDS_H

#include <bpf/libbpf.h>
#include <stdbool.h>
#include <stdio.h>

static inline int libbpf_words_none(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

static inline int libbpf_words_stderr(enum libbpf_print_level level, const char *format,
				      va_list args)
{
	return level == LIBBPF_DEBUG ? 0 : vfprintf(stderr, format, args);
}

static inline void libbpf_words(bool verbose)
{
	libbpf_set_print(verbose ? libbpf_words_stderr : libbpf_words_none);
}

#endif
