# SPDX-License-Identifier: BSD-2-Clause
"""A rule of the guard says which packets it concerns and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Literal

from livedma._native import guard as native
from livedma._native.guard import OPERATIONS

__all__ = ["OPERATIONS", "Action", "Network", "Rule", "parse_source"]

Network = IPv4Network | IPv6Network
Action = Literal["allow", "drop", "limit"]

_ACTION_NAMES: dict[int, Action] = {
    native.ACTIONS["allow"]: "allow",
    native.ACTIONS["drop"]: "drop",
    native.ACTIONS["limit"]: "limit",
}
_MAPPED = IPv6Network("::ffff:0:0/96")


def parse_source(text: str) -> Network:
    """Parses an address or a prefix. An IPv4-mapped one (as in GIDs of RoCEv1) becomes IPv4."""
    network = ip_network(text, strict=False)
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        address = IPv4Address(int(network.network_address) & 0xFFFFFFFF)
        return IPv4Network((address, network.prefixlen - 96))
    return network


@dataclass(frozen=True)
class Rule:
    """Says what happens to packets that meet every given condition."""

    action: Action
    source: Network | None = None
    qps: tuple[int, ...] | Literal["unknown"] = ()  #: destination QPs; (): any
    operations: tuple[str, ...] = ()  #: names of OPERATIONS; (): any
    rate: int = 0  #: limit: packets a second
    burst: int = 0  #: limit: packets that may come at once; 0: a second's worth
    malformed: bool = False  #: only packets that end before their BTH does
    slot: int = field(default=native.SLOT_NEW, compare=False, repr=False)

    def __post_init__(self) -> None:
        if problem := self._problem():
            raise ValueError(problem)
        if self.action == "limit" and not self.burst:
            object.__setattr__(self, "burst", self.rate)

    def _problem(self) -> str | None:
        if self.action not in native.ACTIONS:
            return f"the action is {', '.join(native.ACTIONS)}, not {self.action}"
        if self.action == "limit" and not 0 < self.rate <= native.RATE_MAX:
            return f"the rate of a limit is 1 to {native.RATE_MAX:,} packets a second"
        if self.action == "limit" and not 0 <= self.burst <= native.BURST_MAX:
            return f"the burst of a limit is 1 to {native.BURST_MAX:,} packets"
        if self.action != "limit" and (self.rate or self.burst):
            return "only a limit has a rate and a burst"
        if self.malformed and (self.qps or self.operations):
            return "a malformed packet has neither a QP nor an operation to match"
        if self.qps != "unknown":
            if len(self.qps) > native.RULE_QPS_MAX:
                return f"a rule lists at most {native.RULE_QPS_MAX} QPs: use a second rule"
            if not all(0 <= qp < native.QPS_END for qp in self.qps):
                return f"a QP is a number below {native.QPS_END}"
        unknown = [name for name in self.operations if name not in OPERATIONS]
        if unknown:
            return f"there is no operation {unknown[0]}: there are {', '.join(OPERATIONS)}"
        return None

    def __str__(self) -> str:
        parts: list[str] = [self.action]
        if self.action == "limit":
            parts.append(f"{self.rate}/s burst {self.burst}")
        if self.source is not None:
            parts.append(f"from {_source_text(self.source)}")
        if self.qps:
            parts.append(f"qp {self.qp_text}")
        if self.operations:
            parts.append(f"op {','.join(self.operations)}")
        if self.malformed:
            parts.append("malformed")
        return " ".join(parts)

    @property
    def source_text(self) -> str:
        return "any" if self.source is None else _source_text(self.source)

    @property
    def qp_text(self) -> str:
        return self.qps if isinstance(self.qps, str) else ",".join(map(str, self.qps)) or "any"

    def record(self) -> native.RuleRecord:
        source = self.source
        listed = () if self.qps == "unknown" else self.qps
        return native.RuleRecord(
            action=native.ACTIONS[self.action],
            ip_version=source.version if source else 0,
            source=source.network_address.packed if source else b"",
            prefix=source.prefixlen if source else 0,
            operations=sum(1 << OPERATIONS[name] for name in set(self.operations)),
            qp_match=self._qp_match(),
            qps=tuple(listed),
            rate=self.rate,
            burst=self.burst,
            malformed=self.malformed,
            slot=self.slot,
        )

    def _qp_match(self) -> int:
        if self.qps == "unknown":
            return native.QP_UNKNOWN
        return native.QP_LISTED if self.qps else native.QP_ANY

    @classmethod
    def of(cls, record: native.RuleRecord) -> Rule:
        source: Network | None = None
        if record.ip_version == 4:
            source = IPv4Network((IPv4Address(record.source[:4]), record.prefix))
        elif record.ip_version == 6:
            source = IPv6Network((IPv6Address(record.source), record.prefix))
        return cls(
            action=_ACTION_NAMES[record.action],
            source=source,
            qps="unknown" if record.qp_match == native.QP_UNKNOWN else record.qps,
            operations=tuple(n for n, bit in OPERATIONS.items() if record.operations >> bit & 1),
            rate=record.rate,
            burst=record.burst,
            malformed=record.malformed,
            slot=record.slot,
        )


def _source_text(source: Network) -> str:
    whole = source.prefixlen == source.max_prefixlen
    return str(source.network_address) if whole else str(source)
