/* SPDX-License-Identifier: BSD-2-Clause */
/* A device with live queue pairs, driven by any bytes: packets with a good ICRC and any numbers in them, posts, time,
 * errors, regions that go, a window whose memory comes and goes, a paged region whose pages do. Memory is allocated exactly
 * and freed when it is unlinked, absent pages are poisoned, so that a byte too far or too late is seen; what may not be
 * written has to stay as it was. */
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "check.h"
#include "device/device.h"
#include "device/in_use.h"
#include "memory/paging.h"
#include "memory/window.h"

#define REGION_BYTES 3000
#define REGION_VA 0x10000
#define QPS 3
#define GRANULES 8
#define GRANULE 4096u
#define WINDOW_KEY 3
#define PAGED_KEY 4
#define PAGED_PAD 100 /* the region begins and ends within a page */
#define PAGED_PAGES 5
#define PAGED_BYTES (PAGED_PAGES * LDMA_PAGE - 2 * PAGED_PAD)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
	const uint8_t *at, *end;
};

static uint8_t next(struct input *input)
{
	return input->at < input->end ? *input->at++ : 0;
}

static uint32_t next32(struct input *input)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++)
		value = value << 8 | next(input);
	return value;
}

struct world {
	struct ldma_device *device;
	struct ldma_pd *pd;
	struct ldma_cq *cq;
	struct ldma_qp *qps[QPS];
	uint8_t *memory[2];        /* of keys 1 (all rights) and 2 (to be read only) */
	struct ldma_window window; /* of key 3 */
	void *granules[GRANULES];
	struct ldma_paging paging;
	struct ldma_paged paged; /* of key 4 */
	uint8_t *pages;
	uint64_t now_ns;
};

static const struct ldma_path path = {
	.ip_version = 4, .ttl = 64, .sport = 49152, .src = {10, 0, 0, 2}, .dst = {10, 0, 0, 1}};

static void connect(struct ldma_qp *qp)
{
	struct ldma_qp_attr attr = {
		.access = LDMA_ACCESS_REMOTE_WRITE | LDMA_ACCESS_REMOTE_READ |
			  LDMA_ACCESS_REMOTE_ATOMIC,
		.pkey = 0xffff,
		.qkey = 7,
		.mtu = 256,
		.path = path,
		.dest_qp = 5,
		.max_dest_rd_atomic = 3,
		.max_rd_atomic = 3,
		.timeout = 10,
		.retry_count = 2,
		.rnr_retry = 2,
	};

	CHECK(!ldma_qp_modify(qp, LDMA_QP_RESET, NULL));
	CHECK(!ldma_qp_modify(qp, LDMA_QP_INIT, &attr));
	CHECK(!ldma_qp_modify(qp, LDMA_QP_RTR, &attr));
	CHECK(!ldma_qp_modify(qp, LDMA_QP_RTS, &attr));
}

static void create(struct world *world)
{
	static const uint8_t types[QPS] = {LDMA_QP_RC, LDMA_QP_UC, LDMA_QP_UD};
	struct ldma_device_config config = {
		.max_qp = 4, .max_region = 8, .window_packets = 12, .read_packets = 2};
	uint32_t all = LDMA_ACCESS_ALL;

	*world = (struct world){.device = ldma_device_create(&config),
				.pd = ldma_pd_create(),
				.cq = ldma_cq_create(64, NULL)};
	CHECK(world->device && world->pd && world->cq);
	for (int i = 0; i < 2; i++) {
		world->memory[i] = calloc(1, REGION_BYTES);
		CHECK(!ldma_iova_register(&world->device->iova, world->pd, world->memory[i],
					  REGION_VA, REGION_BYTES,
					  i ? LDMA_ACCESS_REMOTE_READ : all, (uint32_t)i + 1));
	}
	CHECK(!ldma_window_reserve(&world->window, &world->device->iova, GRANULES * GRANULE, 12,
				   0));
	CHECK(!ldma_iova_register_window(&world->device->iova, world->pd, &world->window, all,
					 WINDOW_KEY));
	world->pages = aligned_alloc(LDMA_PAGE, PAGED_PAGES * LDMA_PAGE);
	memset(world->pages, 0, PAGED_PAGES * LDMA_PAGE);
	ASAN_POISON_MEMORY_REGION(world->pages, PAGED_PAGES * LDMA_PAGE);
	ldma_paging_init(&world->paging, NULL);
	CHECK(!ldma_paged_init(&world->paged, &world->paging, world->pages + PAGED_PAD,
			       PAGED_BYTES));
	CHECK(!ldma_iova_register_paged(&world->device->iova, world->pd, &world->paged, REGION_VA,
					all, PAGED_KEY));
	for (int i = 0; i < QPS; i++) {
		struct ldma_qp_init init = {
			.type = types[i],
			.pd = world->pd,
			.send_cq = world->cq,
			.recv_cq = world->cq,
			.max_send = 8,
			.max_recv = 8,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline = 32,
		};

		CHECK(!ldma_device_create_qp(world->device, &init, &world->qps[i]));
		connect(world->qps[i]);
	}
}

static void destroy(struct world *world)
{
	ldma_iova_deregister(&world->device->iova, WINDOW_KEY);
	CHECK(!ldma_window_close(&world->window));
	ldma_iova_deregister(&world->device->iova, PAGED_KEY);
	ldma_paged_release(&world->paged);
	ldma_paged_destroy(&world->paged);
	ASAN_UNPOISON_MEMORY_REGION(world->pages, PAGED_PAGES * LDMA_PAGE);
	free(world->pages);
	ldma_device_destroy(world->device);
	CHECK(!ldma_cq_destroy(world->cq));
	CHECK(!ldma_pd_destroy(world->pd));
	for (size_t i = 0; i < REGION_BYTES; i++)
		CHECK(!world->memory[1][i]);
	free(world->memory[0]);
	free(world->memory[1]);
	for (int i = 0; i < GRANULES; i++)
		free(world->granules[i]);
}

/* Poisons the pages that the device may not read. */
static void poison_pages(struct world *world)
{
	for (uint64_t i = 0; i < PAGED_PAGES; i++) {
		if (world->paged.table.entries[i] & LDMA_ENTRY_PRESENT)
			ASAN_UNPOISON_MEMORY_REGION(world->pages + i * LDMA_PAGE, LDMA_PAGE);
		else
			ASAN_POISON_MEMORY_REGION(world->pages + i * LDMA_PAGE, LDMA_PAGE);
	}
}

static void change_pages(struct world *world, struct input *input)
{
	uint8_t what = next(input);
	uint64_t offset = next(input) * 128u, length = next(input) * 128u;
	struct ldma_fault fault;

	switch (what & 7) {
	case 0:
		ldma_paged_invalidate_range(&world->paged, offset, length);
		break;
	case 1:
		ldma_paged_unmap_range(&world->paged, offset, length);
		break;
	case 2:
		ldma_paged_offer_range(&world->paged, offset, length);
		break;
	case 3:
		ldma_paged_update_range(&world->paged, offset, length, what >> 3 & 1);
		break;
	case 4:
		ldma_paged_claim(&world->paged, offset, length, what >> 3 & 1, &fault);
		ldma_paged_resolve(&fault, what >> 4);
		break;
	default:
		if (!ldma_paging_take_fault(&world->paging, &fault))
			break;
		CHECK(fault.count && fault.first + fault.count <= PAGED_PAGES);
		ldma_paged_resolve(&fault, what >> 4);
	}
	poison_pages(world);
}

/* Where a packet or a request goes: about the regions, or into the window. */
static uint64_t address(const struct world *world, uint32_t key, uint32_t any)
{
	if (key == WINDOW_KEY)
		return world->window.va + any % (GRANULES * GRANULE + 64) - 32;
	return REGION_VA + (uint64_t)(int64_t)(int16_t)any;
}

static void change_window(struct world *world, struct input *input)
{
	struct ldma_window *window = &world->window;
	uint8_t what = next(input);
	unsigned i = what & 7;
	uint64_t offset = i * GRANULE, linked = 0;

	switch (what >> 3 & 3) {
	case 0:
		if (!world->granules[i])
			world->granules[i] = aligned_alloc(GRANULE, GRANULE);
		memset(world->granules[i], 0, GRANULE);
		ldma_window_link(window, offset, world->granules[i], GRANULE);
		break;
	case 1:
		ldma_window_sync(window, offset, (uint64_t)(what >> 5) * GRANULE);
		break;
	case 2:
		ldma_window_drain(window, offset, GRANULE);
		break;
	case 3:
		if (ldma_window_unlink(window, offset, GRANULE))
			break;
		free(world->granules[i]);
		world->granules[i] = NULL;
		break;
	}
	ldma_device_uses(world->device, WINDOW_KEY, window->va + offset, GRANULE);
	for (i = 0; i < GRANULES; i++)
		linked += world->granules[i] != NULL;
	CHECK(window->linked == linked && window->pieces <= linked);
}

static void receive(struct world *world, struct input *input)
{
	static const uint8_t nothing[512] = {[0 ... 511] = 0xee};
	struct ldma_qp *qp = world->qps[next(input) % QPS];
	uint8_t buf[1024], choice = next(input);
	uint32_t expected = choice & 1 ? (uint32_t)qp->req.una : qp->resp.epsn;
	struct ldma_packet packet, decoded;
	size_t payload = next(input) * 2u, length;
	uint8_t *frame;

	ldma_qp_start_packet(qp, &path, next(input), expected + (uint32_t)(int8_t)next(input),
			     &packet);
	memcpy(packet.src, path.dst, 16);
	memcpy(packet.dst, path.src, 16);
	packet.dest_qp = qp->number;
	packet.ack_req = choice >> 1 & 1;
	packet.syndrome = next(input);
	packet.va = next32(input);
	packet.rkey = packet.inv_rkey = next(input) & 7;
	packet.va = address(world, packet.rkey, (uint32_t)packet.va);
	packet.dma_length = choice & 4 ? (uint32_t)payload : next32(input);
	packet.swap_add = packet.compare = next(input);
	packet.qkey = 7;
	packet.tos = choice & 16 ? 3 : 0; /* a congestion mark */
	length = ldma_packet_encode(&packet, nothing, choice & 8 ? 256 : payload, buf, sizeof(buf));
	if (!length)
		return;
	frame = malloc(length);
	memcpy(frame, buf, length);
	CHECK(ldma_packet_decode(LDMA_LINK_IPV4, frame, (uint32_t)length, (uint32_t)length,
				 &decoded));
	ldma_device_receive(world->device, &decoded, world->now_ns);
	free(frame);
}

static void post(struct world *world, struct input *input)
{
	struct ldma_qp *qp = world->qps[next(input) % QPS];
	struct ldma_sge sge[2];
	struct ldma_send_wr send = {
		.sge = sge,
		.sge_count = next(input) % 3,
		.opcode = next(input) % 10,
		.flags = next(input) & 15,
		.remote_va = next(input) * 8u,
		.inline_data = sge,
		.inline_length = next(input) % sizeof(sge),
		.path = &path,
	};
	struct ldma_recv_wr recv = {.sge = sge, .sge_count = send.sge_count};

	for (int i = 0; i < 2; i++) {
		uint32_t any = next(input) * 16u;

		sge[i].length = next(input) * 8u;
		sge[i].lkey = next(input) & 7;
		sge[i].va =
			sge[i].lkey == WINDOW_KEY ? world->window.va + any * 8 : REGION_VA + any;
	}
	if (next(input) & 1)
		ldma_qp_post_send(qp, &send);
	else
		ldma_qp_post_recv(qp, &recv);
}

/* Any attributes to any state: those that are refused change nothing, and the others do no harm. */
static void modify(struct world *world, struct input *input)
{
	struct ldma_qp *qp = world->qps[next(input) % QPS];
	enum ldma_qp_state state = (enum ldma_qp_state)(next(input) & 7);
	struct ldma_qp_attr attr = {
		.optional = next32(input) & 0x1fffff,
		.access = next(input),
		.qkey = 7,
		.pkey = 0xffff,
		.mtu = 128u << (next(input) & 7),
		.path = path,
		.dest_qp = 5,
		.sq_psn = 0xffffff - next(input),
		.rq_psn = 0xffffff - next(input),
		.max_rd_atomic = next(input) & 31,
		.max_dest_rd_atomic = next(input) & 31,
		.timeout = next(input) & 63,
		.retry_count = next(input) & 15,
		.rnr_retry = next(input) & 15,
	};
	uint8_t before = qp->state;

	CHECK(!ldma_qp_modify(qp, state, &attr) || qp->state == before);
}

static void poll_events(struct world *world)
{
	struct ldma_event event;

	while (ldma_device_poll_event(world->device, &event))
		CHECK(event.object == world->cq ||
		      ldma_device_find_qp(world->device, event.qp_num));
}

static void transmit(struct world *world, unsigned count)
{
	uint8_t *buf = malloc(LDMA_PACKET_MAX);
	struct ldma_packet packet;

	for (size_t length = 1; count && length; count--) {
		ldma_device_flush_acks(world->device);
		length = ldma_device_transmit(world->device, buf, world->now_ns, NULL);
		if (!length)
			break;
		CHECK(ldma_packet_decode(LDMA_LINK_IPV4, buf, (uint32_t)length, (uint32_t)length,
					 &packet));
		CHECK(!packet.error && packet.icrc_state == LDMA_ICRC_OK);
	}
	free(buf);
}

static void check_requesters(const struct world *world)
{
	for (int i = 0; i < QPS; i++) {
		const struct ldma_requester *req = &world->qps[i]->req;

		CHECK(req->una <= req->next && req->next <= req->sent_end &&
		      req->sent_end <= req->post);
		CHECK(req->rd_outstanding <= LDMA_MAX_RD_ATOMIC);
		CHECK(req->head == req->tail || req->una < req->post);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, data + size};
	struct ldma_wc wc[8];
	struct world world;

	create(&world);
	while (input.at < input.end) {
		uint8_t what = next(&input);

		switch (what & 7) {
		case 0:
		case 1:
		case 2:
			receive(&world, &input);
			break;
		case 3:
			post(&world, &input);
			break;
		case 4:
			world.now_ns += (uint64_t)next(&input) << (what >> 3);
			transmit(&world, next(&input));
			break;
		case 5:
			ldma_cq_poll(world.cq, wc, 8);
			break;
		case 6:
			if (what & 8)
				connect(world.qps[next(&input) % QPS]);
			else
				ldma_qp_modify(world.qps[next(&input) % QPS],
					       (enum ldma_qp_state)(what >> 4 & 7), NULL);
			break;
		case 7:
			if (what == 255)
				ldma_iova_deregister(&world.device->iova, 1);
			else if ((what & 48) == 48)
				change_pages(&world, &input);
			else if (what & 16)
				change_window(&world, &input);
			else if (what & 8)
				modify(&world, &input);
			else
				poll_events(&world);
			break;
		}
		check_requesters(&world);
	}
	destroy(&world);
	return 0;
}
