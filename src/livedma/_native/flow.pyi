# SPDX-License-Identifier: BSD-2-Clause
from typing import TypedDict, type_check_only

from livedma._native.wire import Batch

@type_check_only
class Half(TypedDict):
    index: int
    peer: int | None
    joined_by_cm: bool
    starts_inside: bool
    is_closed: bool
    src: bytes
    dst: bytes
    dest_qp: int
    transport: str
    mtu: int
    first_ns: int
    last_ns: int
    packets: int
    bytes: int
    copies: int
    icrc_errors: int
    undecoded: int
    cnps: int
    ecn_marked: int
    requests: int
    responses: int
    messages: dict[str, int]
    payload_bytes: dict[str, int]
    naks: dict[str, int]
    rnr_naks: int
    retransmitted: int
    duplicates: int
    lost: dict[str, int]
    missing: int
    not_captured: int
    lost_unclear: int
    crossed: int
    recovered_by_nak: int
    timeouts: int
    timeout_ns: int
    attempts: int
    restarts: int
    fatal_nak: str | None
    is_unanswered: bool
    is_rnr_pending: bool
    is_lost_at_end: bool
    open_operation: str
    rtt_count: int

@type_check_only
class Totals(TypedDict):
    packets: int
    bytes: int
    errors: int
    icrc_errors: int
    not_tracked: int
    first_ns: int
    last_ns: int

TRANSPORTS: tuple[str, ...]

class FlowTable:
    def __init__(self) -> None: ...
    def add(self, batch: Batch) -> None: ...
    def flows(self) -> list[Half]: ...
    def totals(self) -> Totals: ...
    def rtt_us(self, index: int, other: int | None, per_mille: int) -> float | None: ...
