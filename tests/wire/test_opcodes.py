# SPDX-License-Identifier: BSD-2-Clause
"""The opcode table against the specification, written down a second time and in another form.

Here an opcode is a transport's base plus an operation's code (IBA 9.2.1), and its headers are what
the transport puts first plus what the operation needs. The product's table has a line per opcode.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scapy.contrib import roce

from livedma import wire
from livedma.wire.opcodes import HEADER_BYTES, OPCODES, OPERATIONS, opcode_code

BASES = {"RC": 0x00, "UC": 0x20, "RD": 0x40, "UD": 0x60, "XRC": 0xA0}

# Operation -> (code within the transport, its headers, whether it answers, whether it has payload).
SEND_AND_WRITE = {
    "SEND_FIRST": (0x00, "", False, True),
    "SEND_MIDDLE": (0x01, "", False, True),
    "SEND_LAST": (0x02, "", False, True),
    "SEND_LAST_WITH_IMMEDIATE": (0x03, "IMMDT", False, True),
    "SEND_ONLY": (0x04, "", False, True),
    "SEND_ONLY_WITH_IMMEDIATE": (0x05, "IMMDT", False, True),
    "RDMA_WRITE_FIRST": (0x06, "RETH", False, True),
    "RDMA_WRITE_MIDDLE": (0x07, "", False, True),
    "RDMA_WRITE_LAST": (0x08, "", False, True),
    "RDMA_WRITE_LAST_WITH_IMMEDIATE": (0x09, "IMMDT", False, True),
    "RDMA_WRITE_ONLY": (0x0A, "RETH", False, True),
    "RDMA_WRITE_ONLY_WITH_IMMEDIATE": (0x0B, "RETH IMMDT", False, True),
}
READ_AND_ATOMIC = {
    "RDMA_READ_REQUEST": (0x0C, "RETH", False, False),
    "RDMA_READ_RESPONSE_FIRST": (0x0D, "AETH", True, True),
    "RDMA_READ_RESPONSE_MIDDLE": (0x0E, "", True, True),
    "RDMA_READ_RESPONSE_LAST": (0x0F, "AETH", True, True),
    "RDMA_READ_RESPONSE_ONLY": (0x10, "AETH", True, True),
    "ACKNOWLEDGE": (0x11, "AETH", True, False),
    "ATOMIC_ACKNOWLEDGE": (0x12, "AETH ATOMICACKETH", True, False),
    "COMPARE_SWAP": (0x13, "ATOMICETH", False, False),
    "FETCH_ADD": (0x14, "ATOMICETH", False, False),
}
INVALIDATE = {
    "SEND_LAST_WITH_INVALIDATE": (0x16, "IETH", False, True),
    "SEND_ONLY_WITH_INVALIDATE": (0x17, "IETH", False, True),
}
FLUSH = {"FLUSH": (0x1C, "FETH RETH", False, False)}
ATOMIC_WRITE = {"ATOMIC_WRITE": (0x1D, "RETH", False, True)}
RESYNC = {"RESYNC": (0x15, "", False, False)}
DATAGRAM = {name: SEND_AND_WRITE[name] for name in ("SEND_ONLY", "SEND_ONLY_WITH_IMMEDIATE")}

OPERATIONS_OF = {
    "RC": SEND_AND_WRITE | READ_AND_ATOMIC | INVALIDATE | FLUSH | ATOMIC_WRITE,
    "UC": SEND_AND_WRITE,
    "RD": SEND_AND_WRITE | READ_AND_ATOMIC | RESYNC | FLUSH,
    "UD": DATAGRAM,
    "XRC": SEND_AND_WRITE | READ_AND_ATOMIC | INVALIDATE,
}
# What a transport puts before an operation's own headers: on requests, on responses.
LEADING = {
    "RC": ("", ""),
    "UC": ("", ""),
    "RD": ("RDETH DETH", "RDETH"),
    "UD": ("DETH", ""),
    "XRC": ("XRCETH", ""),
}
BYTES = {
    "RDETH": 4,
    "DETH": 8,
    "XRCETH": 4,
    "FETH": 4,
    "RETH": 16,
    "ATOMICETH": 28,
    "AETH": 4,
    "ATOMICACKETH": 8,
    "IMMDT": 4,
    "IETH": 4,
    "CNPETH": 16,
}

# code -> (name, transport, headers, answers, payload)
SPECIFICATION = {
    BASES[transport] + code: (
        f"{transport}_{name}",
        transport,
        tuple(f"{LEADING[transport][is_response]} {headers}".split()),
        is_response,
        has_payload,
    )
    for transport, operations in OPERATIONS_OF.items()
    for name, (code, headers, is_response, has_payload) in operations.items()
}
SPECIFICATION[0x81] = ("CNP", "CNP", ("CNPETH",), False, False)


def test_the_table_has_exactly_the_opcodes_there_are() -> None:
    ours = {code: opcode.name for code, opcode in OPCODES.items()}
    assert ours == {code: line[0] for code, line in SPECIFICATION.items()}


@pytest.mark.parametrize("code", SPECIFICATION, ids=lambda code: SPECIFICATION[code][0])
def test_every_line_says_what_the_specification_says(code: int) -> None:
    opcode = OPCODES[code]
    name, transport, headers, is_response, has_payload = SPECIFICATION[code]
    assert (opcode.code, opcode.name, opcode.transport) == (code, name, transport)
    assert opcode.headers == headers
    assert opcode.is_response == is_response
    assert opcode.is_request == (not is_response and name != "CNP")
    assert opcode.may_carry_payload == has_payload
    # Where it stands in its message follows from its name.
    assert opcode.is_first == (not re.search("_MIDDLE|_LAST", name))
    assert opcode.is_last == (not re.search("_MIDDLE|_FIRST", name))


@pytest.mark.parametrize("code", SPECIFICATION, ids=lambda code: SPECIFICATION[code][0])
def test_every_operation_follows_from_its_name(code: int) -> None:
    words = {
        "_RDMA_READ_RESPONSE": "READ_RESPONSE",
        "_RDMA_READ_REQUEST": "READ",
        "_RDMA_WRITE": "WRITE",
        "_SEND": "SEND",
        "_ATOMIC_ACK": "ATOMIC_ACK",
        "_ACKNOWLEDGE": "ACK",
        "_COMPARE_SWAP": "COMPARE_SWAP",
        "_FETCH_ADD": "FETCH_ADD",
        "_FLUSH": "FLUSH",
        "_ATOMIC_WRITE": "ATOMIC_WRITE",
        "_RESYNC": "RESYNC",
        "CNP": "CNP",
    }
    name = OPCODES[code].name
    expected = next(operation for word, operation in words.items() if word in name)
    assert OPCODES[code].operation == expected
    assert expected in OPERATIONS


def test_names_are_unique_and_lead_back_to_their_code() -> None:
    assert len({opcode.name for opcode in OPCODES.values()}) == len(OPCODES)
    for code, opcode in OPCODES.items():
        assert opcode_code(opcode.name) == code
        assert opcode_code(f"IB_OPCODE_{opcode.name}") == code
    with pytest.raises(ValueError, match="there is no opcode 'RC_SEND'"):
        opcode_code("RC_SEND")


def test_headers_have_the_bytes_of_the_specification() -> None:
    assert BYTES == HEADER_BYTES


@pytest.mark.parametrize("code", SPECIFICATION, ids=lambda code: SPECIFICATION[code][0])
def test_the_encoder_adds_those_bytes_and_no_others(code: int) -> None:
    packet = wire.encode(code, src="10.0.0.1", dst="10.0.0.2")
    headers = SPECIFICATION[code][2]
    assert len(packet) == 20 + 8 + 12 + sum(BYTES[header] for header in headers) + 4


def test_other_codes_are_none() -> None:
    for code in set(range(256)) - set(SPECIFICATION):
        with pytest.raises(ValueError, match="does not exist"):
            wire.encode(code, src="10.0.0.1", dst="10.0.0.2")


def test_scapy_agrees_on_every_opcode_it_knows() -> None:
    assert len(roce._bth_opcodes) > 50
    for code, name in roce._bth_opcodes.items():
        assert OPCODES[code].name == name


def test_there_is_one_line_an_opcode_in_the_one_table() -> None:
    table = Path(__file__).resolve().parents[2] / "native" / "wire" / "opcode.def"
    lines = re.findall(r"^OPCODE\(0x(\w\w), *(\w+), *(\w+),", table.read_text(), re.MULTILINE)
    assert [(int(code, 16), transport, name) for code, transport, name in lines] == [
        (code, opcode.transport, opcode.name) for code, opcode in sorted(OPCODES.items())
    ]
