# SPDX-License-Identifier: BSD-2-Clause
"""Filters choose the packets of a capture, live or from a file. People write them as text."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from livedma._native.tap import OPERATIONS, PREFIXES_MAX, QPS_MAX, Selection

Side = Literal["src", "dst", "host"]

_SIDES: dict[Side, int] = {"src": 1, "dst": 2, "host": 3}

#: Short names that stand for several operations.
_GROUPS = {
    "ATOMIC": ("COMPARE_SWAP", "FETCH_ADD", "ATOMIC_WRITE"),
    "RESPONSE": ("READ_RESPONSE", "ACK", "ATOMIC_ACK"),
}


@dataclass(frozen=True)
class Filters:
    """Holds conditions in the form in which BPF programs and taps compare them.

    Conditions of different kinds must all hold; of one kind, one must.
    """

    prefixes: tuple[tuple[int, int, bytes, bytes], ...] = ()
    qps: tuple[int, ...] = ()
    operations: int = 0

    @classmethod
    def parse(
        cls,
        *,
        host: Iterable[str] = (),
        src: Iterable[str] = (),
        dst: Iterable[str] = (),
        qp: Iterable[str | int] = (),
        op: Iterable[str] = (),
    ) -> Filters:
        """Parses conditions. Raises ValueError, which says in one sentence what cannot be used."""
        sides: tuple[tuple[Side, Iterable[str]], ...] = (("host", host), ("src", src), ("dst", dst))
        prefixes = tuple(parse_prefix(text, side) for side, texts in sides for text in texts)
        if len(prefixes) > PREFIXES_MAX:
            raise ValueError(f"{len(prefixes)} addresses: at most {PREFIXES_MAX} can be compared")
        qps = tuple(parse_qp(text) for text in qp)
        if len(qps) > QPS_MAX:
            raise ValueError(f"{len(qps)} QPs: at most {QPS_MAX} can be compared")
        operations = 0
        for text in op:
            operations |= parse_operations(text)
        return cls(prefixes, qps, operations)

    def __bool__(self) -> bool:
        """Returns whether there is any condition."""
        return bool(self.prefixes or self.qps or self.operations)

    def selection(self) -> Selection:
        """Returns the same conditions for packets that are already decoded."""
        return Selection(prefixes=self.prefixes, qps=self.qps, operations=self.operations)


def parse_prefix(text: str, side: Side) -> tuple[int, int, bytes, bytes]:
    """Parses ADDR or ADDR/LEN; bits behind LEN do not count."""
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is no address: give an IPv4 or IPv6 address, or one with /LEN"
        ) from None
    return (
        _SIDES[side],
        network.version,
        network.network_address.packed.ljust(16, b"\0"),
        network.netmask.packed.ljust(16, b"\0"),
    )


def parse_qp(text: str | int) -> int:
    try:
        qp = text if isinstance(text, int) else int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is no QP: give a number such as 17 or 0x11") from None
    if not 0 <= qp <= 0xFFFFFF:
        raise ValueError(f"QP {text}: a QP number has 24 bits")
    return qp


def parse_operations(text: str) -> int:
    """Parses names separated by commas, in upper or lower case, into a mask."""
    mask = 0
    for name in text.upper().replace("-", "_").split(","):
        members = _GROUPS.get(name, (name,))
        if any(member not in OPERATIONS for member in members):
            known = ", ".join([*OPERATIONS, *_GROUPS])
            raise ValueError(f"{name!r} is no operation: choose from {known}")
        for member in members:
            mask |= 1 << OPERATIONS[member]
    return mask
