/* SPDX-License-Identifier: BSD-2-Clause */
#include "port/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "bpf/capture_match.h"
#include "wire/packet.h"

#define WAKE_PART 8 /* a reader is woken once an eighth of its ring has gathered */

/* The fields of a packet that filters ask about. */
struct sight {
	__u64 src[2], dst[2];
	uint32_t ip_version, operation, dest_qp, src_qp;
};

static bool is_sane(const struct ldma_tap_request *wanted)
{
	const struct ldma_capture_config *config = &wanted->config;

	return config->prefix_count <= LDMA_CAPTURE_PREFIXES &&
	       config->qp_count <= LDMA_CAPTURE_QPS &&
	       config->snaplen >= LDMA_CAPTURE_SNAPLEN_MIN &&
	       config->snaplen <= LDMA_CAPTURE_SNAPLEN_MAX;
}

int ldma_tap_create(const struct ldma_tap_request *wanted, int memory_fd, int fd,
		    struct ldma_tap **ret)
{
	struct ldma_tap *tap;
	int error;

	if (wanted->version != LDMA_TAP_VERSION)
		return -EPROTO;
	if (!is_sane(wanted))
		return -EINVAL;
	tap = calloc(1, sizeof(*tap));
	if (!tap)
		return -ENOMEM;
	tap->wanted = *wanted;
	tap->fd = fd;
	error = ldma_tap_memory_map(memory_fd, wanted->ring_bytes, &tap->memory);
	if (error) {
		free(tap);
		return error;
	}
	*ret = tap;
	return 0;
}

void ldma_tap_destroy(struct ldma_tap *tap)
{
	if (!tap)
		return;
	ldma_tap_memory_unmap(&tap->memory);
	free(tap);
}

void ldma_taps_add(struct ldma_taps *taps, struct ldma_tap *tap)
{
	taps->each[taps->count++] = tap;
}

void ldma_taps_remove(struct ldma_taps *taps, struct ldma_tap *tap)
{
	ldma_taps_publish(taps);
	for (uint32_t i = 0; i < taps->count; i++)
		if (taps->each[i] == tap)
			taps->each[i] = taps->each[--taps->count];
}

/* Reads these fields. A packet that ends within its headers has no known operation. */
static void look(const struct ldma_tapped *packet, struct sight *ret)
{
	const uint8_t *l3 = packet->l3;
	bool is_v4 = l3[0] >> 4 == 4;
	uint32_t options = is_v4 && (l3[0] & 15) > 5 ? ((l3[0] & 15) - 5) * 4u : 0;
	uint32_t bth = (is_v4 ? 28 : 48) + options, deth = bth + LDMA_BTH_BYTES;
	const struct ldma_opcode_info *opcode;

	*ret = (struct sight){.ip_version = is_v4 ? 4 : 6, .operation = LDMA_OP_UNKNOWN};
	if (packet->length < (is_v4 ? 20 : 40))
		return;
	memcpy(ret->src, l3 + (is_v4 ? 12 : 8), is_v4 ? 4 : 16);
	memcpy(ret->dst, l3 + (is_v4 ? 16 : 24), is_v4 ? 4 : 16);
	if (packet->length < deth)
		return;
	opcode = &ldma_opcodes[l3[bth]];
	ret->operation = opcode->operation;
	ret->dest_qp = get24(l3 + bth + 5);
	if (opcode->headers & LDMA_HAS_RDETH)
		deth += 4;
	if (opcode->headers & LDMA_HAS_DETH && packet->length >= deth + 8)
		ret->src_qp = get24(l3 + deth + 5);
}

static bool wants(struct ldma_tap *tap, const struct ldma_tapped *packet, const struct sight *sight)
{
	const struct ldma_capture_config *config = &tap->wanted.config;

	if (!(tap->wanted.directions & 1u << packet->direction))
		return false;
	tap->has_news = true;
	tap->counters.frames++;
	tap->counters.roce++;
	if (!ldma_capture_takes_addresses(config, sight->ip_version, sight->src, sight->dst) ||
	    !ldma_capture_takes_transport(config, sight->operation, sight->dest_qp, sight->src_qp))
		return false;
	tap->counters.matched++;
	tap->counters.bytes += packet->length;
	if (!ldma_capture_leaves_out(config, tap->counters.matched))
		return true;
	tap->counters.sampled_out++;
	return false;
}

/* Returns how much of the ring is in use. With a position that cannot be, the reader counts as having read nothing. */
static uint64_t used_bytes(struct ldma_tap *tap)
{
	uint64_t tail = __atomic_load_n(&tap->memory.shared->consumer, __ATOMIC_ACQUIRE);

	if (tap->head - tail > tap->memory.ring_bytes)
		tail = tap->head - tap->memory.ring_bytes;
	tap->tail = tail;
	return tap->head - tail;
}

static void record(struct ldma_tap *tap, const struct ldma_tapped *packet)
{
	uint64_t ring_bytes = tap->memory.ring_bytes, slot;
	uint32_t captured = packet->length;
	struct ldma_record *to;

	if (captured > tap->wanted.config.snaplen)
		captured = tap->wanted.config.snaplen;
	slot = ldma_tap_slot_bytes(captured);
	if (slot > ring_bytes - (tap->head - tap->tail) && slot > ring_bytes - used_bytes(tap)) {
		tap->counters.ring_dropped++;
		return;
	}
	to = (struct ldma_record *)(tap->memory.ring + (tap->head & (ring_bytes - 1)));
	*to = (struct ldma_record){
		.time_ns = packet->time_ns,
		.captured = captured,
		.length = packet->length,
		.segment = packet->segment,
		.direction = packet->direction,
	};
	memcpy(to->frame, packet->l3, captured);
	tap->head += slot;
	tap->counters.recorded++;
}

void ldma_taps_packet(struct ldma_taps *taps, const struct ldma_tapped *packet)
{
	struct sight sight;

	look(packet, &sight);
	for (uint32_t i = 0; i < taps->count; i++)
		if (wants(taps->each[i], packet, &sight))
			record(taps->each[i], packet);
}

/* Wakes the reader, at most once per part of the ring: a reader that says it sleeps and does not read costs no more
 * system calls. */
static void wake(struct ldma_tap *tap)
{
	struct ldma_tap_shared *shared = tap->memory.shared;
	uint64_t part = tap->memory.ring_bytes / WAKE_PART;
	struct ldma_tap_reply reply = {0};

	if (!__atomic_load_n(&shared->sleeps, __ATOMIC_RELAXED) ||
	    tap->head - tap->woke_at < part || used_bytes(tap) < part)
		return;
	tap->woke_at = tap->head;
	__atomic_store_n(&shared->sleeps, 0, __ATOMIC_RELAXED);
	send(tap->fd, &reply, sizeof(reply), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void publish(struct ldma_tap *tap)
{
	struct ldma_tap_shared *shared = tap->memory.shared;

	tap->has_news = false;
	shared->counters = tap->counters;
	__atomic_store_n(&shared->producer, tap->head, __ATOMIC_RELEASE);
	wake(tap);
}

void ldma_taps_publish(struct ldma_taps *taps)
{
	for (uint32_t i = 0; i < taps->count; i++)
		if (taps->each[i]->has_news)
			publish(taps->each[i]);
}
