/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that need no Python. Input: four bytes of read_position, eight of read_length, then the message. What has the shape
 * points into its message, and its reply fits. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "check.h"
#include "nfs/compound.h"
#include "nfs/opens.h"

enum { BEFORE = 12 };

static const uint8_t *message;
static uint32_t message_length;

static void check_inside(const uint8_t *p, uint32_t length)
{
	CHECK(p >= message && p - message <= message_length);
	CHECK(length <= message_length - (uint32_t)(p - message));
}

static void check_reply(const struct ldma_compound *compound, enum ldma_nfs_status status)
{
	uint32_t count =
		compound->op == LDMA_NFS_OP_READ && compound->count <= 4096 ? compound->count : 0;
	struct ldma_compound_result result = {.status = status, .count = count};
	uint32_t room = LDMA_COMPOUND_REPLY_MAX + count + 3, length;
	uint8_t *reply = malloc(room);

	CHECK(reply);
	memset(reply, 0xee, room);
	length = ldma_compound_encode(compound, &result, count > 0, reply);
	CHECK(length % 4 == 0 && length <= LDMA_COMPOUND_REPLY_MAX + ((count + 3) & ~3u));
	CHECK(get32(reply) == compound->xid && get32(reply + LDMA_RPC_REPLY_BYTES) == status);
	if (count && !status)
		for (uint32_t i = 0; i < count; i++)
			CHECK(reply[ldma_compound_data_at(compound) + i] == 0xee);
	free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ldma_compound compound;
	uint64_t read_length;

	if (size < BEFORE || size > UINT32_MAX)
		return 0;
	read_length = get64(data + 4);
	message = data + BEFORE;
	message_length = (uint32_t)(size - BEFORE);
	if (!ldma_compound_decode(&compound, message, message_length, get32(data), read_length))
		return 0;
	check_inside(compound.session_id, LDMA_SESSION_ID_BYTES);
	check_inside(compound.tag, compound.tag_length);
	check_inside(compound.handle, compound.handle_length);
	CHECK(compound.tag_length <= LDMA_TAG_MAX && compound.handle_length <= LDMA_HANDLE_MAX);
	CHECK((compound.op == LDMA_NFS_OP_COMMIT) == !compound.other);
	if (compound.other)
		check_inside(compound.other, LDMA_OTHER_BYTES);
	CHECK((compound.op == LDMA_NFS_OP_WRITE && !read_length) == !!compound.data);
	if (compound.data)
		check_inside(compound.data, compound.count);
	CHECK(compound.request_bytes >= message_length);
	check_reply(&compound, LDMA_NFS_OK);
	check_reply(&compound, LDMA_NFS_IO);
	return 0;
}
