# SPDX-License-Identifier: BSD-2-Clause
# The C core's packet, as the bindings see it. Contracts are in wire/packet.h and wire/opcode.h.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "wire/opcode.h" nogil:
    struct ldma_opcode_info:
        const char *name
        uint16_t headers
        uint8_t headers_bytes
        uint8_t transport
        uint8_t operation
        uint8_t role
    const ldma_opcode_info ldma_opcodes[256]
    int LDMA_HEADER_COUNT
    int LDMA_OP_COUNT
    const uint8_t *ldma_header_bytes
    const char *const *ldma_header_names
    const char *const *ldma_operation_names

cdef extern from "wire/packet.h" nogil:
    int LDMA_LINK_ETHERNET, LDMA_LINK_RAW, LDMA_LINK_IPV4, LDMA_LINK_IPV6, LDMA_ROCE2_PORT
    int LDMA_ROLE_FIRST
    int LDMA_OP_SEND
    int LDMA_HAS_DETH
    int LDMA_PACKET_OK, LDMA_PACKET_CAPTURE
    int LDMA_SEEN_IP, LDMA_SEEN_UDP, LDMA_SEEN_BTH, LDMA_SEEN_PAYLOAD, LDMA_SEEN_ICRC
    int LDMA_SEEN_MAD, LDMA_SEEN_RPCRDMA
    int LDMA_ICRC_UNKNOWN, LDMA_ICRC_OK, LDMA_ICRC_BAD

    struct ldma_packet:
        uint64_t time_ns
        const uint8_t *frame
        uint32_t captured
        uint32_t length
        uint32_t l3_offset
        uint32_t bth_offset
        uint32_t payload_offset
        uint32_t payload_length
        uint32_t payload_captured
        uint32_t error_at
        uint8_t error
        uint8_t seen
        uint16_t headers
        uint8_t version
        uint8_t ip_version
        uint8_t direction
        uint8_t vlan_count
        uint16_t vlan[2]
        uint8_t src[16]
        uint8_t dst[16]
        uint8_t tos
        uint8_t ttl
        uint16_t ip_id
        uint16_t sport
        uint16_t dport
        uint16_t udp_length
        uint16_t udp_checksum
        uint8_t opcode
        uint8_t flags
        uint8_t bth4
        uint8_t ack_req
        uint16_t pkey
        uint8_t icrc_state
        uint8_t pad
        uint32_t dest_qp
        uint32_t psn
        uint32_t icrc
        uint64_t va
        uint32_t rkey
        uint32_t dma_length
        uint64_t swap_add
        uint64_t compare
        uint64_t original
        uint32_t qkey
        uint32_t src_qp
        uint32_t imm
        uint32_t inv_rkey
        uint32_t ee_context
        uint32_t xrc_srq
        uint32_t feth
        uint32_t msn
        uint8_t syndrome
        uint8_t rpcrdma_proc
        uint16_t mad_attribute
        uint32_t rpcrdma_xid
        uint32_t rpcrdma_credits

    bint ldma_packet_decode(uint32_t link, const uint8_t *frame, uint32_t captured,
                            uint32_t length, ldma_packet *ret)
    size_t ldma_packet_error_text(const ldma_packet *packet, char *buf, size_t size)
    size_t ldma_packet_encode(const ldma_packet *packet, const void *payload,
                              size_t payload_length, uint8_t *buf, size_t capacity)

cdef extern from "capture/batch.h" nogil:
    struct ldma_batch:
        ldma_packet *packets
        uint32_t count
        uint32_t capacity
        uint8_t *bytes
        size_t bytes_used
        size_t bytes_size
        uint64_t other

    ldma_batch *ldma_batch_create(uint32_t capacity, size_t bytes_size)
    void ldma_batch_destroy(ldma_batch *batch)
    void ldma_batch_reset(ldma_batch *batch)
    void ldma_batch_add(ldma_batch *batch, uint32_t link, uint64_t time_ns, uint8_t direction,
                        const uint8_t *frame, uint32_t captured, uint32_t length)
    bint ldma_batch_add_copy(ldma_batch *batch, uint32_t link, uint64_t time_ns,
                             uint8_t direction, const uint8_t *frame, uint32_t captured,
                             uint32_t length)

cdef extern from "capture/print.h" nogil:
    int LDMA_LINE_MAX

    struct ldma_inside:
        const char *text
        size_t length

    struct ldma_text_style:
        bint color
        uint64_t start_ns

    size_t ldma_print_json(const ldma_packet *packet, uint64_t n, const ldma_inside *inside,
                           char *buf)
    size_t ldma_print_text(const ldma_packet *packet, const ldma_text_style *style,
                           const ldma_inside *inside, char *buf)
    size_t ldma_print_address(const uint8_t *address, uint8_t ip_version, char *buf)
    size_t ldma_print_opcode(uint8_t opcode, char *buf)
