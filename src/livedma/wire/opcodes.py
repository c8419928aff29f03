# SPDX-License-Identifier: BSD-2-Clause
"""Reads the opcode table from the C core, which compiles wire/opcode.def."""

from __future__ import annotations

from dataclasses import dataclass

from livedma._native.wire import header_bytes, opcode_table

__all__ = ["HEADER_BYTES", "OPCODES", "OPERATIONS", "Opcode", "opcode_code"]

_TRANSPORTS = ("RC", "UC", "RD", "UD", "CNP", "XRC")
_REQUEST, _RESPONSE, _PAYLOAD, _FIRST, _LAST = 1, 2, 4, 8, 16


@dataclass(frozen=True)
class Opcode:
    """Holds one line of the table."""

    code: int
    name: str  #: the kernel's name, without IB_OPCODE_
    transport: str
    headers: tuple[str, ...]  #: behind the BTH, in wire order
    operation: str
    role: int

    @property
    def is_request(self) -> bool:
        return bool(self.role & _REQUEST)

    @property
    def is_response(self) -> bool:
        return bool(self.role & _RESPONSE)

    @property
    def may_carry_payload(self) -> bool:
        return bool(self.role & _PAYLOAD)

    @property
    def is_first(self) -> bool:
        return bool(self.role & _FIRST)

    @property
    def is_last(self) -> bool:
        return bool(self.role & _LAST)


#: Every opcode, by its code.
OPCODES: dict[int, Opcode] = {
    code: Opcode(code, name, _TRANSPORTS[transport], headers, operation, role)
    for code, name, transport, headers, operation, role in opcode_table()
}
_CODES = {opcode.name: opcode.code for opcode in OPCODES.values()}

#: Length of each header, in wire order.
HEADER_BYTES: dict[str, int] = header_bytes()

#: What packets do, whatever the transport: the words of filters and summaries.
OPERATIONS: tuple[str, ...] = tuple(dict.fromkeys(o.operation for o in OPCODES.values()))


def opcode_code(opcode: int | str) -> int:
    """Returns the code of an opcode given by code or by name, with or without IB_OPCODE_."""
    if isinstance(opcode, int):
        return opcode
    try:
        return _CODES[opcode.removeprefix("IB_OPCODE_")]
    except KeyError:
        raise ValueError(f"there is no opcode {opcode!r}") from None
