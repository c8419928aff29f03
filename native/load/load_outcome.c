/* SPDX-License-Identifier: BSD-2-Clause */
/* Puts errors of sessions into words. */
#include <stdarg.h>
#include <stdio.h>

#include "load/load_internal.h"
#include "load/pattern.h"

void load_session_error(struct load_session *session, const char *format, ...)
{
	char *words = session->figures.words;
	va_list arguments;

	session->figures.counters.errors++;
	session->load->counters.errors++;
	if (*words)
		return;
	va_start(arguments, format);
	vsnprintf(words, sizeof(session->figures.words), format, arguments);
	va_end(arguments);
}

void load_count_status(struct ldma_load *load, uint32_t operation, uint32_t status)
{
	for (uint32_t i = 0; i < LDMA_LOAD_STATUSES; i++) {
		struct ldma_load_status *one = &load->statuses[i];

		if (one->count && (one->operation != operation || one->status != status))
			continue;
		*one = (struct ldma_load_status){operation, status, one->count + 1};
		return;
	}
}

/* Describes a wrong word: what it is instead, if the load wrote it. */
static void describe(const struct load_session *session, uint64_t offset, uint32_t generation,
		     uint64_t word, char *ret, size_t size)
{
	uint64_t file_bytes = (uint64_t)session->blocks * session->load->config.size, place;

	if (!word) {
		snprintf(ret, size, ", which is nothing");
	} else if (ldma_pattern_place(ldma_pattern_base(session->seed, generation), word,
				      file_bytes, &place)) {
		snprintf(ret, size, ", which belongs to offset %lu", (unsigned long)place);
	} else if (generation > 1 &&
		   ldma_pattern_word(ldma_pattern_base(session->seed, generation - 1), offset) ==
			   word) {
		snprintf(ret, size, ", which was there before it was written last");
	} else {
		*ret = '\0';
	}
}

void load_session_wrong(struct load_session *session, uint64_t offset, uint32_t generation,
			const uint8_t *data, uint32_t length, uint32_t at)
{
	uint64_t wrong_at = offset + at, word_at = wrong_at / 8 * 8, found = 0, wanted;
	char instead[80] = "";

	wanted = ldma_pattern_word(ldma_pattern_base(session->seed, generation), word_at);
	session->figures.counters.wrong++;
	session->load->counters.wrong++;
	if (word_at >= offset && word_at - offset + 8 <= length) {
		memcpy(&found, data + (word_at - offset), 8);
		describe(session, word_at, generation, found, instead, sizeof(instead));
		load_session_error(session, "wrong data at offset %lu: %016lx instead of %016lx%s",
				   (unsigned long)wrong_at, (unsigned long)found,
				   (unsigned long)wanted, instead);
		return;
	}
	load_session_error(session, "wrong data at offset %lu: byte %02x", (unsigned long)wrong_at,
			   data[at]);
}
