# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Collection, Sequence
from typing import NamedTuple

RULES_MAX: int
RULE_QPS_MAX: int
QPS_END: int
RATE_MAX: int
BURST_MAX: int
ACTIONS: dict[str, int]
OPERATIONS: dict[str, int]
QP_ANY: int
QP_LISTED: int
QP_UNKNOWN: int
SLOT_NEW: int
SLOT_UNMATCHED: int
SLOT_MALFORMED: int

class RuleRecord(NamedTuple):
    action: int
    ip_version: int
    source: bytes
    prefix: int
    operations: int
    qp_match: int
    qps: tuple[int, ...]
    rate: int
    burst: int
    malformed: bool
    slot: int

def is_bpffs(path: str) -> bool: ...
def xdp_query(ifindex: int) -> tuple[int, str, int, bool] | None: ...
def detach(directory: str) -> None: ...

class GuardSession:
    @staticmethod
    def start(ifindex: int, directory: str) -> GuardSession: ...
    @staticmethod
    def open(directory: str) -> GuardSession: ...
    def close(self) -> None: ...
    def rules(self) -> list[RuleRecord]: ...
    def replace(self, records: Sequence[RuleRecord]) -> None: ...
    def counters(self) -> list[tuple[int, int, int, int]]: ...
    def known_qps(self) -> list[int]: ...
    def change_qps(self, add: Collection[int], remove: Collection[int]) -> None: ...
