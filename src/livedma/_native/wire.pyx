# SPDX-License-Identifier: BSD-2-Clause
"""Packets in batches: decoded, encoded, printed."""
import json
from ipaddress import ip_address

from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_AsString, PyBytes_Size
from cpython.bytearray cimport PyByteArray_AsString, PyByteArray_Resize

from livedma._native.packet cimport *




def opcode_table():
    """Returns [(code, name, transport, headers, operation, role)] of every opcode."""
    return [
        (
            code,
            ldma_opcodes[code].name.decode(),
            ldma_opcodes[code].transport,
            tuple(
                ldma_header_names[i].decode()
                for i in range(LDMA_HEADER_COUNT)
                if ldma_opcodes[code].headers >> i & 1
            ),
            ldma_operation_names[ldma_opcodes[code].operation].decode(),
            ldma_opcodes[code].role,
        )
        for code in range(256)
        if ldma_opcodes[code].name != NULL
    ]


def header_bytes():
    """Returns {header name: its length}, in wire order."""
    return {ldma_header_names[i].decode(): ldma_header_bytes[i] for i in range(LDMA_HEADER_COUNT)}


cdef str address_text(const uint8_t *address, uint8_t ip_version):
    cdef char text[64]
    cdef size_t n = ldma_print_address(address, ip_version, text)
    return text[:n].decode()


cdef class Packet:
    """Shows one decoded packet, and holds a copy of its frame. Fields of layers that it lacks are 0."""

    cdef ldma_packet c
    cdef readonly bytes frame
    cdef str src_text, dst_text  # made when first asked for

    @staticmethod
    cdef Packet of(const ldma_packet *source):
        cdef Packet self = Packet.__new__(Packet)
        self.frame = source.frame[: source.captured]
        self.c = source[0]
        self.c.frame = <const uint8_t *>PyBytes_AsString(self.frame)
        return self

    @property
    def time_ns(self):
        return self.c.time_ns

    @property
    def length(self):
        return self.c.length

    @property
    def src(self):
        if self.src_text is None:
            self.src_text = address_text(self.c.src, self.c.ip_version)
        return self.src_text

    @property
    def dst(self):
        if self.dst_text is None:
            self.dst_text = address_text(self.c.dst, self.c.ip_version)
        return self.dst_text

    @property
    def udp_length(self):
        return self.c.udp_length

    @property
    def udp_checksum(self):
        return self.c.udp_checksum

    @property
    def ip_version(self):
        return self.c.ip_version

    @property
    def opcode(self):
        return self.c.opcode

    @property
    def opcode_name(self):
        """Is the kernel's name of the opcode without IB_OPCODE_; None if there is no such opcode."""
        cdef const char *name = ldma_opcodes[self.c.opcode].name
        return name.decode() if name != NULL else None

    @property
    def bth_flags(self):
        """Is the BTH's second byte: solicited event, migration state, pad count, transport version."""
        return self.c.flags

    @property
    def dest_qp(self):
        return self.c.dest_qp

    @property
    def psn(self):
        return self.c.psn

    @property
    def src_qp(self):
        return self.c.src_qp if self.c.headers & LDMA_HAS_DETH else None

    @property
    def icrc_ok(self):
        if self.c.icrc_state == LDMA_ICRC_UNKNOWN:
            return None
        return self.c.icrc_state == LDMA_ICRC_OK

    @property
    def payload(self):
        """Holds the part of the payload that was captured, without pad."""
        return self.frame[self.c.payload_offset : self.c.payload_offset + self.c.payload_captured]

    @property
    def error(self):
        """Says what is wrong with the packet, and at which byte; None: nothing is."""
        cdef char text[256]
        cdef size_t n = ldma_packet_error_text(&self.c, text, sizeof(text))
        return text[:n].decode() if n else None

    def to_dict(self, n=1):
        """Returns the packet as `--format json` prints it, without what is inside its payload."""
        line = bytearray(LDMA_LINE_MAX)
        cdef char *p = PyByteArray_AsString(line)
        return json.loads(p[: ldma_print_json(&self.c, n, NULL, p)])


cdef class Batch:
    """Holds a bounded number of decoded packets. It is reused: filling it again invalidates what was read from it."""

    def __cinit__(self, uint32_t capacity=2048, size_t frame_bytes=0):
        self.c = ldma_batch_create(capacity, frame_bytes)
        if self.c == NULL:
            raise MemoryError

    def __dealloc__(self):
        ldma_batch_destroy(self.c)

    def __len__(self):
        return self.c.count

    def __getitem__(self, uint32_t index):
        if index >= self.c.count:
            raise IndexError(index)
        return Packet.of(&self.c.packets[index])

    @property
    def other(self):
        """Counts the frames of the last fill that were not RoCE."""
        return self.c.other

    @property
    def start_ns(self):
        """Is the time of the first packet; 0 if there is none."""
        return self.c.packets[0].time_ns if self.c.count else 0

    def reset(self):
        ldma_batch_reset(self.c)
        self.keep = None

    def add(self, uint32_t link, uint64_t time_ns, uint8_t direction, const uint8_t[::1] frame,
            uint32_t length):
        """Copies one frame and decodes it into the batch. Returns False if the batch is full."""
        cdef uint8_t nothing
        cdef uint32_t captured = <uint32_t>frame.shape[0]
        return ldma_batch_add_copy(self.c, link, time_ns, direction,
                                   &frame[0] if captured else &nothing, captured, length)

    def tally(self):
        """Returns (packets with a bad ICRC, packets with another error than being cut by the capture)."""
        cdef uint32_t i, bad = 0, broken = 0
        for i in range(self.c.count):
            bad += self.c.packets[i].icrc_state == LDMA_ICRC_BAD
            broken += self.c.packets[i].error not in (LDMA_PACKET_OK, LDMA_PACKET_CAPTURE)
        return bad, broken

    def carriers(self):
        """Returns the indexes of the packets that may carry a message of an upper layer from its start."""
        cdef uint32_t i
        cdef const ldma_packet *packet
        cdef const ldma_opcode_info *info
        found = []
        for i in range(self.c.count):
            packet = &self.c.packets[i]
            info = &ldma_opcodes[packet.opcode]
            if (packet.payload_captured and info.operation == LDMA_OP_SEND
                    and info.role & LDMA_ROLE_FIRST):
                found.append(i)
        return found

    def json(self, uint64_t first, dict inside):
        """Returns lines of JSON; packet i has number first + i; inside: {i: b'"cm":{…}'} adds members to its object."""
        return self.lines(first, False, inside, False, 0)

    def text(self, dict inside, bint color, uint64_t start_ns):
        """Returns lines of text; inside: {i: b'a phrase'}."""
        return self.lines(1, True, inside, color, start_ns)

    cdef bytearray lines(self, uint64_t first, bint as_text, dict inside, bint color,
                         uint64_t start_ns):
        cdef bytearray out = bytearray()
        cdef Py_ssize_t used = 0, size, extra = 0
        cdef uint32_t i
        cdef ldma_inside found
        cdef const ldma_inside *found_or_null
        cdef ldma_text_style style
        cdef char *p
        cdef bytes phrase
        style.color = color
        style.start_ns = start_ns
        for phrase in inside.values():
            extra += PyBytes_Size(phrase)
        size = self.c.count * 640 + extra + LDMA_LINE_MAX
        PyByteArray_Resize(out, size)
        p = PyByteArray_AsString(out)
        for i in range(self.c.count):
            if size - used < LDMA_LINE_MAX + extra:
                size = size + size // 2 + LDMA_LINE_MAX + extra
                PyByteArray_Resize(out, size)
                p = PyByteArray_AsString(out)
            found_or_null = NULL
            if inside:
                phrase = inside.get(i)
                if phrase is not None:
                    found.text = PyBytes_AsString(phrase)
                    found.length = PyBytes_Size(phrase)
                    found_or_null = &found
            if as_text:
                used += ldma_print_text(&self.c.packets[i], &style, found_or_null, p + used)
            else:
                used += ldma_print_json(&self.c.packets[i], first + i, found_or_null, p + used)
        PyByteArray_Resize(out, used)
        return out


def decode(frame, uint32_t link=LDMA_LINK_ETHERNET, length=None, uint64_t time_ns=0):
    """Decodes one frame. Returns None if it is not RoCE. length: its bytes on the wire, if it was cut."""
    cdef bytes data = bytes(frame)
    cdef ldma_packet packet
    cdef uint32_t captured = <uint32_t>len(data)
    if not ldma_packet_decode(link, <const uint8_t *>PyBytes_AsString(data), captured,
                              captured if length is None else length, &packet):
        return None
    packet.time_ns = time_ns
    return Packet.of(&packet)


cdef int put_address(uint8_t *to, object text) except -1:
    cdef bytes packed = ip_address(text).packed
    memcpy(to, PyBytes_AsString(packed), PyBytes_Size(packed))
    return 4 if PyBytes_Size(packed) == 4 else 6


def encode(uint8_t opcode, *, src, dst, bytes payload=b"", str version="roce2",
           uint16_t sport=49152, uint16_t dport=LDMA_ROCE2_PORT, uint8_t tos=0, uint8_t ttl=64,
           uint16_t ip_id=0, bint solicited=False, bint migreq=True, uint16_t pkey=0xffff,
           bint fecn=False, bint becn=False, uint32_t dest_qp=0, bint ack_req=False,
           uint32_t psn=0, reth=None, aeth=None, deth=None, atomic=None, atomic_ack=None,
           uint32_t imm=0, ieth=None, rdeth=None, xrceth=None, feth=None):
    """Builds a packet from its IP header (or GRH) to its ICRC. Headers are dicts with the keys of the JSON form."""
    cdef ldma_packet c
    for name, value in (("dest_qp", dest_qp), ("psn", psn)):
        if value >> 24:
            raise ValueError(f"{name} {value:#x} does not fit 24 bits")
    memset(&c, 0, sizeof(c))
    c.opcode = opcode
    c.version = 1 if version == "roce1" else 2
    c.ip_version = put_address(c.src, src)
    if put_address(c.dst, dst) != c.ip_version:
        raise ValueError("src and dst must both be IPv4 or both be IPv6")
    if c.version == 1 and c.ip_version != 6:
        raise ValueError("RoCEv1 addresses are GIDs: 16 bytes, written as IPv6")
    c.tos, c.ttl, c.ip_id, c.sport, c.dport = tos, ttl, ip_id, sport, dport
    c.flags = (0x80 if solicited else 0) | (0x40 if migreq else 0)
    c.bth4 = (0x80 if fecn else 0) | (0x40 if becn else 0)
    c.pkey, c.dest_qp, c.ack_req, c.psn, c.imm = pkey, dest_qp, ack_req, psn, imm
    if reth:
        c.va, c.rkey, c.dma_length = reth["va"], reth["rkey"], reth["length"]
    if atomic:
        c.va, c.rkey = atomic["va"], atomic["rkey"]
        c.swap_add, c.compare = atomic["swap_add"], atomic["compare"]
    if aeth:
        c.syndrome, c.msn = aeth["syndrome"], aeth["msn"]
    if deth:
        c.qkey, c.src_qp = deth["qkey"], deth["src_qp"]
    if atomic_ack:
        c.original = atomic_ack["original"]
    if ieth:
        c.inv_rkey = ieth["rkey"]
    if rdeth:
        c.ee_context = rdeth["ee_context"]
    if xrceth:
        c.xrc_srq = xrceth["srq"]
    if feth:
        c.feth = feth["placement"] | feth["selectivity"] << 4
    cdef bytearray out = bytearray(len(payload) + 256)
    cdef size_t n = ldma_packet_encode(&c, PyBytes_AsString(payload), len(payload),
                                       <uint8_t *>PyByteArray_AsString(out), len(out))
    if n == 0:
        raise ValueError(f"opcode 0x{opcode:02x} does not exist or cannot carry {len(payload)} bytes")
    return bytes(out[:n])
