/* SPDX-License-Identifier: BSD-2-Clause */
/* A caller and a peer that says what it likes, on a wire: every reply ends its call, or the connection, or is ignored, and
 * nothing but what was offered is ever believed. */
#include <errno.h>

#include "rpc/caller.h"
#include "tests/port/ends.h"

#define CALLS 6
#define INLINE 1024
#define KEY 0x1111
#define CHUNK_KEY 0x2222
#define CHUNK_VA 0x10000

static uint8_t ours[8 * (2 * CALLS + LDMA_CALLER_SPARE) * INLINE / 8] __attribute__((aligned(8)));
static uint8_t theirs[64 * INLINE];
static struct ldma_caller caller;
static struct end here, there;

static void start(struct ldma_port *near, struct ldma_port *far)
{
	struct ldma_qp_init init = {
		.type = LDMA_QP_RC,
		.max_send = 2 * CALLS,
		.max_recv = ldma_caller_receives(CALLS),
		.max_send_sge = 1,
		.max_recv_sge = 1,
	};
	struct ldma_caller_config config = {
		.calls = CALLS,
		.send_bytes = INLINE,
		.receive_bytes = INLINE,
		.memory = ours,
		.lkey = KEY,
		.first_xid = 0xfffff, /* wraps soon */
	};
	struct ldma_device *device;

	open_end(&here, near, ours, sizeof(ours), KEY);
	open_end(&there, far, theirs, sizeof(theirs), KEY);
	device = ldma_port_lock(near);
	ldma_device_destroy_qp(here.qp);
	init.pd = here.pd;
	init.send_cq = init.recv_cq = here.cq;
	assert(!ldma_device_create_qp(device, &init, &here.qp));
	ldma_port_unlock(near);
	connect_end(&here, "127.0.0.2", there.qp->number);
	connect_end(&there, "127.0.0.1", here.qp->number);
	for (uint32_t i = 0; i < 8; i++)
		post_recv(&there, i, (uint64_t)i * INLINE, INLINE);
	config.qp = here.qp;
	assert(sizeof(ours) >= ldma_caller_bytes(CALLS, INLINE, INLINE));
	assert(!ldma_caller_init(&caller, &config));
	ldma_port_lock(near);
	assert(!ldma_caller_prepare(&caller));
	ldma_port_unlock(near);
}

static void stop(void)
{
	ldma_caller_destroy(&caller);
	close_end(&here);
	close_end(&there);
}

/* The peer has got a call, and takes the next. */
static void receive_call(void)
{
	struct ldma_wc wc;

	do {
		assert(ldma_port_wait(there.port, there.cq, 0, PATIENCE_NS) == 1);
		assert(ldma_cq_poll(there.cq, &wc, 1) == 1 && wc.status == LDMA_WC_SUCCESS);
	} while (wc.opcode != LDMA_WC_RECV);
	post_recv(&there, wc.wr_id, wc.wr_id * INLINE, INLINE);
}

/* A call that offers a write chunk of 100 bytes and a reply chunk of 2000. Returns its number. */
static uint32_t call(uint64_t user)
{
	static const uint8_t message[40] = {0};
	struct ldma_request request = {
		.message = message,
		.length = sizeof(message),
		.write = {.key = CHUNK_KEY, .length = 100, .va = CHUNK_VA},
		.reply = {.key = CHUNK_KEY, .length = 2000, .va = CHUNK_VA + 4096},
		.user = user,
	};
	int number = ldma_caller_take(&caller);

	assert(number >= 0);
	ldma_port_lock(here.port);
	assert(!ldma_caller_post(&caller, (uint32_t)number, &request));
	ldma_port_unlock(here.port);
	receive_call();
	return (uint32_t)number;
}

/* Lets the peer send these words, and the caller hear of it. */
static enum ldma_caller_event answer(const uint32_t *words, uint32_t count, uint32_t cut,
				     struct ldma_answer *ret)
{
	uint64_t at = sizeof(theirs) - INLINE;
	enum ldma_caller_event event;
	struct ldma_wc wc;

	for (uint32_t i = 0; i < count; i++)
		put32(theirs + at + 4 * i, words[i]);
	post_send(&there, LDMA_WR_SEND, 99, at, 4 * count - cut, 0, 0);
	assert(ldma_port_wait(here.port, here.cq, 0, PATIENCE_NS) == 1);
	assert(ldma_cq_poll(here.cq, &wc, 1) == 1);
	event = ldma_caller_complete(&caller, &wc, ret);
	assert(ret->has_receive);
	ldma_port_lock(here.port);
	assert(!ldma_caller_release(&caller, ret->receive));
	ldma_port_unlock(here.port);
	return event;
}

#define WORDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / 4
#define WRITTEN(length) 1, 1, CHUNK_KEY, length, 0, CHUNK_VA, 0
#define LONG(length) 1, 1, CHUNK_KEY, length, 0, CHUNK_VA + 4096

static void test_credits(void)
{
	struct ldma_answer got;
	uint32_t xids[CALLS], number = call(1);

	assert(ldma_caller_take(&caller) == -EAGAIN); /* one before the first reply */
	xids[0] = caller.slots[number].xid;
	assert(answer(WORDS(xids[0], 1, 3, 0, 0, WRITTEN(60), 0, xids[0], 1, 0), 0, &got) ==
	       LDMA_CALLER_ENDED);
	assert(!got.error && got.user == 1 && got.placed == 60 && got.length == 12);
	for (uint32_t i = 0; i < 3; i++)
		xids[i] = caller.slots[call(i)].xid;
	assert(ldma_caller_take(&caller) == -EAGAIN);
	/* Fewer than are open: no further one until as many have ended. */
	for (uint32_t i = 0; i < 2; i++) {
		assert(answer(WORDS(xids[i], 1, 1, 0, 0, 0, 0, xids[i], 1), 0, &got) ==
		       LDMA_CALLER_ENDED);
		assert(got.user == i && !got.placed && ldma_caller_take(&caller) == -EAGAIN);
	}
	/* More than were asked for are not believed. */
	assert(answer(WORDS(xids[2], 1, ~0u, 0, 0, 0, 0, xids[2], 1), 0, &got) ==
	       LDMA_CALLER_ENDED);
	assert(caller.granted == CALLS && caller.peak == 3);
	for (uint32_t i = 0; i < CALLS; i++)
		xids[i] = caller.slots[call(i)].xid;
	assert(ldma_caller_take(&caller) == -EAGAIN);
	for (uint32_t i = 0; i < CALLS; i++)
		answer(WORDS(xids[i], 1, CALLS, 0, 0, 0, 0, xids[i], 1), 0, &got);
	assert(!caller.open);
}

/* What ends the call alone. */
static void test_bad_calls(void)
{
	struct ldma_answer got;
	uint32_t xid;

#define EXPECT(wanted, ...)                                                                        \
	do {                                                                                       \
		xid = caller.slots[call(5)].xid;                                                   \
		assert(answer(WORDS(xid, 1, CALLS, __VA_ARGS__), 0, &got) == LDMA_CALLER_ENDED);   \
		assert(got.error == (wanted) && got.user == 5 && !caller.open);                    \
	} while (0)

	EXPECT(-EREMOTEIO, 4, 2);
	EXPECT(-EREMOTEIO, 4, 1, 1, 1);
	EXPECT(-EBADMSG, 0, 0, WRITTEN(101), 0, xid, 1); /* more than offered */
	EXPECT(-EBADMSG, 0, 0, WRITTEN(~0u), 0, xid, 1);
	EXPECT(-EBADMSG, 0, 0, 1, 1, CHUNK_KEY + 1, 4, 0, CHUNK_VA, 0, 0, xid, 1);
	EXPECT(-EBADMSG, 0, 0, 1, 1, CHUNK_KEY, 4, 1, CHUNK_VA, 0, 0, xid, 1);
	EXPECT(-EBADMSG, 0, 0, 1, 1, CHUNK_KEY, 4, 0, CHUNK_VA, WRITTEN(4), 0, xid, 1);
	EXPECT(-EBADMSG, 1, 0, 0, LONG(2001));
	EXPECT(0, 1, 0, 0, LONG(2000));
	assert(!got.message && got.reply_length == 2000);
	EXPECT(0, 0, 0, WRITTEN(100), LONG(0), xid, 1);
	assert(got.message && got.placed == 100 && got.length == 8);
#undef EXPECT
}

static void test_strays(void)
{
	struct ldma_answer got;
	uint32_t xid = caller.slots[call(8)].xid;
	uint64_t before = caller.counters.strays;

	assert(answer(WORDS(xid + 1, 1, 1, 0, 0, 0, 0, xid + 1, 1), 0, &got) ==
	       LDMA_CALLER_NOTHING);
	assert(answer(WORDS(xid ^ 0xfffff000, 1, 1, 0, 0, 0, 0, xid, 1), 0, &got) ==
	       LDMA_CALLER_NOTHING);
	/* A call of the peer's own. */
	assert(answer(WORDS(xid, 1, 1, 0, 0, 0, 0, xid, 0), 0, &got) == LDMA_CALLER_NOTHING);
	assert(caller.granted == CALLS && caller.open == 1);
	assert(answer(WORDS(xid, 1, CALLS, 0, 0, 0, 0, xid, 1), 0, &got) == LDMA_CALLER_ENDED);
	/* A second time. */
	assert(answer(WORDS(xid, 1, CALLS, 0, 0, 0, 0, xid, 1), 0, &got) == LDMA_CALLER_NOTHING);
	assert(caller.counters.strays == before + 4);
}

/* What ends the connection, and so every call. */
static void test_malformed(struct ldma_port *near, struct ldma_port *far, uint32_t which)
{
	struct ldma_answer got;
	enum ldma_caller_event event;
	uint32_t xid;

	start(near, far);
	xid = caller.slots[call(3)].xid;
	switch (which) {
	case 0: /* no header at all */
		event = answer(WORDS(xid, 1, 1, 0), 1, &got);
		break;
	case 1: /* another version */
		event = answer(WORDS(xid, 2, 1, 0, 0, 0, 0, xid, 1), 0, &got);
		break;
	case 2: /* nothing granted */
		event = answer(WORDS(xid, 1, 0, 0, 0, 0, 0, xid, 1), 0, &got);
		break;
	case 3: /* a read list */
		event = answer(WORDS(xid, 1, 1, 0, 1, 4, 1, 4, 0, 0, 0, 0, 0, xid, 1), 0, &got);
		break;
	case 4: /* cut off within a chunk */
		event = answer(WORDS(xid, 1, 1, 0, 0, 1, 1, CHUNK_KEY, 4, 0), 0, &got);
		break;
	case 5: /* a chunk of more segments than there can be */
		event = answer(
			WORDS(xid, 1, 1, 0, 0, 1, ~0u, CHUNK_KEY, 4, 0, CHUNK_VA, 0, 0, xid, 1), 0,
			&got);
		break;
	case 6: /* another XID within */
		event = answer(WORDS(xid, 1, 1, 0, 0, 0, 0, xid + 1, 1), 0, &got);
		break;
	case 7: /* no whole words */
		event = answer(WORDS(xid, 1, 1, 0, 0, 0, 0, xid, 1, 1), 1, &got);
		break;
	case 8: /* more behind what is elsewhere */
		event = answer(WORDS(xid, 1, 1, 1, 0, 0, LONG(8), xid), 0, &got);
		break;
	case 9: /* no message anywhere */
		event = answer(WORDS(xid, 1, 1, 1, 0, 0, 0), 0, &got);
		break;
	default: /* a procedure that is no reply */
		event = answer(WORDS(xid, 1, 1, 3, 0, 0, 0, xid, 1), 0, &got);
	}
	assert(event == LDMA_CALLER_BROKEN);
	assert(ldma_caller_end_one(&caller, &got) && got.error == -EPROTO && got.user == 3);
	assert(!ldma_caller_end_one(&caller, &got) && ldma_caller_take(&caller) == -ENOTCONN);
	stop();
}

static void test_lost(void)
{
	struct ldma_answer got;
	struct ldma_wc wc;

	call(1);
	call(2);
	ldma_port_lock(here.port);
	assert(!ldma_qp_modify(here.qp, LDMA_QP_ERR, NULL));
	ldma_port_unlock(here.port);
	assert(ldma_port_wait(here.port, here.cq, 0, PATIENCE_NS) == 1);
	assert(ldma_cq_poll(here.cq, &wc, 1) == 1);
	assert(ldma_caller_complete(&caller, &wc, &got) == LDMA_CALLER_BROKEN);
	for (uint32_t i = 0; i < 2; i++)
		assert(ldma_caller_end_one(&caller, &got) && got.error == -ECONNRESET);
	assert(!ldma_caller_end_one(&caller, &got) && caller.status == LDMA_WC_WR_FLUSH_ERR);
}

static void test_too_long(void)
{
	struct ldma_request request = {.message = theirs, .user = 1};
	uint32_t room = ldma_caller_inline_room(&caller, &request);
	int number = ldma_caller_take(&caller);

	assert(room == INLINE - 28 && number >= 0);
	request.length = room + 4;
	ldma_port_lock(here.port);
	assert(ldma_caller_post(&caller, (uint32_t)number, &request) == -EMSGSIZE);
	ldma_port_unlock(here.port);
	ldma_caller_drop(&caller, (uint32_t)number);
	assert(ldma_caller_limit(&caller, 16) == -EINVAL);
}

int main(void)
{
	struct ldma_port *near = open_port("127.0.0.1"), *far = open_port("127.0.0.2");

	start(near, far);
	test_credits();
	test_bad_calls();
	test_strays();
	test_too_long();
	test_lost();
	stop();
	for (uint32_t i = 0; i < 11; i++)
		test_malformed(near, far, i);
	ldma_port_close(near);
	ldma_port_close(far);
	return 0;
}
