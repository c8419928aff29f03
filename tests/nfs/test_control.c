/* SPDX-License-Identifier: BSD-2-Clause */
/* Which calls are control traffic. Nothing here depends on what a peer says about itself. */
#include "base/bytes.h"
#include "nfs/control.h"
#include "tests/base/expect.h"

#include <stdlib.h>
#include <string.h>

enum { NULL_PROCEDURE, COMPOUND };

static uint8_t message[8192];
static uint32_t length;

static void add(uint32_t word)
{
	put32(message + length, word);
	length += 4;
}

static void add_opaque(uint32_t bytes)
{
	add(bytes);
	memset(message + length, 'x', (bytes + 3) & ~3u);
	length += (bytes + 3) & ~3u;
}

/* Writes a call of an operation, whose arguments would follow. */
static void call(uint32_t procedure, uint32_t credential, uint32_t tag, uint32_t operations,
		 uint32_t op)
{
	const uint32_t head[] = {7, 0, 2, 100003, 4, procedure};

	length = 0;
	for (uint32_t i = 0; i < sizeof(head) / sizeof(*head); i++)
		add(head[i]);
	add(1);
	add_opaque(credential);
	add(0);
	add_opaque(0);
	if (procedure == NULL_PROCEDURE)
		return;
	add_opaque(tag);
	add(2); /* the minor version */
	add(operations);
	add(op);
}

static bool is_control(void)
{
	uint8_t *copy = malloc(length); /* so that a sanitizer sees what is read beyond it */
	bool ret;

	memcpy(copy, message, length);
	ret = ldma_is_control(copy, length);
	free(copy);
	return ret;
}

static void test_what_makes_keeps_and_ends_sessions(void)
{
	static const uint32_t control[] = {41, 42, 43, 44, 53, 57};

	for (uint32_t op = 0; op < 80; op++) {
		bool is_one = false;

		for (uint32_t i = 0; i < sizeof(control) / sizeof(*control); i++)
			is_one = is_one || control[i] == op;
		call(COMPOUND, 24, 5, 1, op);
		EXPECT(is_control() == is_one);
		call(COMPOUND, 24, 5, 2, op); /* with others behind it, it may take long */
		EXPECT(!is_control());
	}
	call(NULL_PROCEDURE, 0, 0, 0, 0);
	EXPECT(is_control());
}

static void test_what_is_no_such_call(void)
{
	for (uint32_t word = 1; word < 6; word++) {
		call(COMPOUND, 24, 0, 1, 53);
		put32(message + 4 * word, 99);
		EXPECT(!is_control());
	}
	call(COMPOUND, 404, 0, 1, 53);
	EXPECT(!is_control());
	call(COMPOUND, 24, 1028, 1, 53);
	EXPECT(!is_control());
	call(COMPOUND, 400, 1024, 1, 53);
	EXPECT(is_control());
}

static void test_what_ends_too_early(void)
{
	uint32_t whole;

	call(COMPOUND, 24, 8, 1, 53);
	for (whole = length; length; length--)
		EXPECT(is_control() == (length == whole));
	call(NULL_PROCEDURE, 24, 0, 0, 0);
	for (whole = length; length; length--)
		EXPECT(is_control() == (length == whole));
}

int main(void)
{
	test_what_makes_keeps_and_ends_sessions();
	test_what_is_no_such_call();
	test_what_ends_too_early();
	return 0;
}
