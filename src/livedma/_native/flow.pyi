# SPDX-License-Identifier: BSD-2-Clause
from typing import TypedDict, type_check_only

from livedma._native.wire import Batch

@type_check_only
class Half(TypedDict):
    """Counts one direction of a connection: the packets to one queue pair
    (native/capture/flow.h).
    """

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
    """Counts all packets that were added; not_tracked: those for which the table had no room."""

    packets: int
    bytes: int
    errors: int
    icrc_errors: int
    not_tracked: int
    first_ns: int
    last_ns: int

TRANSPORTS: tuple[str, ...]

class FlowTable:
    """Takes packets batch by batch; holds numbers, never packets."""

    def __init__(self) -> None: ...
    def add(self, batch: Batch) -> None:
        """Takes every packet of a batch, in order."""
    def flows(self) -> list[Half]:
        """Returns the counters of every half, in the order of their first packets."""
    def totals(self) -> Totals:
        """Returns the counters over all packets."""
    def rtt_us(self, index: int, other: int | None, per_mille: int) -> float | None:
        """Returns a quantile of the round trips of one or two halves, or None without samples."""
