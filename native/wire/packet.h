/* SPDX-License-Identifier: BSD-2-Clause */
/* A packet is a RoCEv1 or RoCEv2 frame as a struct; this decodes frames into packets and builds frames from them, by
 * the opcode table. Nothing here keeps state: any thread may call it.
 *
 * Decoding never reads past the captured bytes, never allocates and never fails: the packet itself says what its frame
 * contradicts or lacks (error, error_at), next to everything that could be decoded before it.
 */
#ifndef LDMA_PACKET_H
#define LDMA_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/opcode.h"

#define LDMA_ROCE2_PORT 4791
#define LDMA_BTH_BYTES 12
#define LDMA_ICRC_BYTES 4

/* Link types by their pcap numbers (LINKTYPE_*). */
enum ldma_link {
	LDMA_LINK_NULL = 0,
	LDMA_LINK_ETHERNET = 1,
	LDMA_LINK_RAW_BSD = 12,
	LDMA_LINK_RAW_OPENBSD = 14,
	LDMA_LINK_RAW = 101,
	LDMA_LINK_LOOP = 108,
	LDMA_LINK_SLL = 113,
	LDMA_LINK_IPV4 = 228,
	LDMA_LINK_IPV6 = 229,
	LDMA_LINK_SLL2 = 276,
};

/* Layers that were decoded; the fields of a layer are valid only if its bit is set in ldma_packet.seen. */
enum ldma_seen {
	LDMA_SEEN_IP = 1,
	LDMA_SEEN_UDP = 2,
	LDMA_SEEN_BTH = 4,
	LDMA_SEEN_PAYLOAD = 8, /* every header is there: payload_* are valid */
	LDMA_SEEN_ICRC = 16,   /* the four bytes were captured: icrc is valid */
	LDMA_SEEN_MAD = 32,
	LDMA_SEEN_RPCRDMA = 64, /* looks like an RPC-over-RDMA version 1 header */
};

enum ldma_icrc_state {
	LDMA_ICRC_UNKNOWN, /* the capture was cut before it */
	LDMA_ICRC_OK,
	LDMA_ICRC_BAD,
};

enum ldma_direction { LDMA_DIRECTION_UNKNOWN, LDMA_DIRECTION_RX, LDMA_DIRECTION_TX };

/* What is wrong with a packet. The text takes two numbers and, where it starts with %s, the name of a header. */
#define LDMA_PACKET_ERRORS(X)                                                                      \
	X(SHORT, "%s cut short: needs %u bytes, %u there")                                         \
	X(CAPTURE, "%s cut short by the capture: %u of %u bytes there")                            \
	X(IP_VERSION, "%s has version %u where %u belongs")                                        \
	X(NEXT_HEADER, "%s names %u as the next header where %u belongs")                          \
	X(IP_HEADER, "%s has an impossible header length of %u bytes (packet: %u)")                \
	X(IP_LENGTH, "%s says %u bytes, the frame carries %u")                                     \
	X(FRAGMENT, "%s is a fragment (offset %u, more: %u): RoCE is never fragmented")            \
	X(UDP_LENGTH, "%s says %u bytes, IP carries %u")                                           \
	X(OPCODE, "%s has unknown opcode 0x%02x%.0u")                                              \
	X(TRANSPORT_VERSION, "%s has transport version %u where %u belongs")                       \
	X(PAD, "%s says %u bytes of padding, %u bytes are there")                                  \
	X(PAD_POSITION, "%s says %u bytes of padding in the middle of a message%.0u")              \
	X(PAYLOAD, "%s carries %u bytes of payload where %u belong")                               \
	X(WRITE_LENGTH, "%s says %u bytes, the packet carries %u")                                 \
	X(ALIGNMENT, "%s with its padding is %u bytes long, no multiple of %u")

enum ldma_packet_error {
	LDMA_PACKET_OK,
#define X(name, text) LDMA_PACKET_##name,
	LDMA_PACKET_ERRORS(X)
#undef X
};

/* One packet. Multi-byte fields are in host order; addresses are as on the wire, IPv4 in the first four bytes. */
struct ldma_packet {
	uint64_t time_ns;     /* set by the caller, as is direction */
	const uint8_t *frame; /* the captured bytes; owned by the caller */
	uint32_t captured;    /* bytes at frame */
	uint32_t length;      /* bytes on the wire */
	uint32_t l3_offset;   /* of the IP header or GRH in the frame */
	uint32_t bth_offset;  /* of the BTH in the frame */
	uint32_t payload_offset;
	uint32_t payload_length;   /* on the wire, without pad */
	uint32_t payload_captured; /* of it, at frame + payload_offset */
	uint32_t error_at;         /* byte of the frame */
	uint32_t error_a, error_b;
	const char *error_what;
	uint8_t error;    /* enum ldma_packet_error */
	uint8_t seen;     /* enum ldma_seen */
	uint16_t headers; /* enum ldma_header_bit, those that were decoded */

	uint8_t version;    /* 1: RoCEv1, 2: RoCEv2 */
	uint8_t ip_version; /* 4 or 6; a GRH counts as 6 */
	uint8_t direction;  /* enum ldma_direction */
	uint8_t vlan_count;
	uint16_t vlan[2]; /* outer first: priority, DEI and id as on the wire */
	uint8_t src[16], dst[16];
	uint8_t tos, ttl; /* traffic class and hop limit for IPv6 and GRH */
	uint16_t ip_id;
	uint16_t sport, dport, udp_length, udp_checksum;

	uint8_t opcode;
	uint8_t flags; /* second byte of the BTH: SE, M, pad (2 bits), version (4 bits) */
	uint8_t bth4;  /* fifth byte: FECN, BECN, reserved */
	uint8_t ack_req;
	uint16_t pkey;
	uint8_t icrc_state; /* enum ldma_icrc_state */
	uint8_t pad;
	uint32_t dest_qp, psn;
	uint32_t icrc; /* as printed: the four bytes read as little-endian */

	uint64_t va; /* RETH or AtomicETH */
	uint32_t rkey, dma_length;
	uint64_t swap_add, compare, original;
	uint32_t qkey, src_qp, imm, inv_rkey, ee_context, xrc_srq, feth, msn;
	uint8_t syndrome;

	uint8_t rpcrdma_proc;
	uint16_t mad_attribute;
	uint32_t rpcrdma_xid, rpcrdma_credits;
};

static inline bool ldma_packet_solicited(const struct ldma_packet *packet)
{
	return packet->flags & 0x80;
}

static inline bool ldma_packet_migreq(const struct ldma_packet *packet)
{
	return packet->flags & 0x40;
}

static inline bool ldma_packet_fecn(const struct ldma_packet *packet)
{
	return packet->bth4 & 0x80;
}

static inline bool ldma_packet_becn(const struct ldma_packet *packet)
{
	return packet->bth4 & 0x40;
}

/* Decodes one frame of the given link type. Returns whether it is RoCE; if not, ret is unspecified.
 * length is what was on the wire, captured <= length what is at frame. Verifies the ICRC if all of it was captured;
 * a frame that was captured whole and contradicts itself has LDMA_ICRC_BAD even where no ICRC could be computed. */
bool ldma_packet_decode(uint32_t link, const uint8_t *frame, uint32_t captured, uint32_t length,
			struct ldma_packet *ret);

/* Writes what is wrong with the packet as text, without a newline; empty for LDMA_PACKET_OK. Returns its length. */
size_t ldma_packet_error_text(const struct ldma_packet *packet, char *buf, size_t size);

/* Builds a packet from its IP header (or GRH, version 1) to its ICRC, by the opcode table.
 * Takes version, ip_version, addresses, tos, ttl, ip_id, ports, the BTH's fields (pad is computed) and the fields of
 * the headers that the opcode has; lengths and checksums are computed (UDP over IPv4: none, as RoCE senders do).
 * Returns its length, or 0 if the opcode is unknown, the payload does not belong to it, or capacity is too small. */
size_t ldma_packet_encode(const struct ldma_packet *packet, const void *payload,
			  size_t payload_length, uint8_t *buf, size_t capacity);

/* Puts the checksums of a RoCEv2 packet of length bytes, whose headers are whole, in their places: the IPv4 header's
 * (and for UDP over it none), or UDP's over IPv6 without extensions. */
void ldma_packet_set_checksums(uint8_t *l3, size_t length);

/* Returns where ldma_packet_encode puts the payload in buf. A payload that is already there is not copied. */
size_t ldma_packet_payload_offset(const struct ldma_packet *packet);

enum ldma_aeth_kind { LDMA_AETH_ACK, LDMA_AETH_RNR_NAK, LDMA_AETH_RESERVED, LDMA_AETH_NAK };

static inline enum ldma_aeth_kind ldma_aeth_kind(uint8_t syndrome)
{
	return (enum ldma_aeth_kind)((syndrome >> 5) & 3);
}

/* Returns the reason of a NAK in words ("PSN sequence error"); never NULL. */
const char *ldma_nak_reason(uint8_t syndrome);

/* Returns how long the timer field of an RNR NAK asks to wait (IBA table 45). */
uint32_t ldma_rnr_timer_us(uint8_t syndrome);

#endif
