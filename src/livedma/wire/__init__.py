# SPDX-License-Identifier: BSD-2-Clause
"""Decodes, encodes and prints packets for people, and turns them into columns.

>>> from livedma import wire
>>> packet = wire.encode("RC_SEND_ONLY", src="10.0.0.1", dst="10.0.0.2", payload=b"hello")
>>> wire.decode(packet, link=wire.LINK_RAW).opcode_name
'RC_SEND_ONLY'
"""

from livedma._native.wire import Batch, Packet, decode
from livedma.wire.encode import encode, ethernet
from livedma.wire.opcodes import HEADER_BYTES, OPCODES, OPERATIONS, Opcode

LINK_ETHERNET = 1
LINK_RAW = 101

__all__ = [
    "HEADER_BYTES",
    "LINK_ETHERNET",
    "LINK_RAW",
    "OPCODES",
    "OPERATIONS",
    "Batch",
    "Opcode",
    "Packet",
    "decode",
    "encode",
    "ethernet",
]
