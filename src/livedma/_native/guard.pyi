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
    """Holds a struct ldma_guard_rule without the fields that follow from others
    (bpf/guard_rule.h).
    """

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

def is_bpffs(path: str) -> bool:
    """Returns whether there is a BPF file system at the path."""

def xdp_query(ifindex: int) -> tuple[int, str, int, bool] | None:
    """Returns the interface's XDP program: (id, name, id of its link or 0, whether generic), or
    None.
    """

def detach(directory: str) -> None:
    """Detaches the guard that is pinned in the directory, whatever version pinned it. The pins
    stay. OSError (ENOENT): there is no link.
    """

class GuardSession:
    """Controls the pinned guard of one interface."""

    @staticmethod
    def start(ifindex: int, directory: str) -> GuardSession:
        """Attaches a guard without rules to an interface and pins it in the directory, which is
        empty. OSError (EBUSY): another XDP program is attached.
        """
    @staticmethod
    def open(directory: str) -> GuardSession:
        """Opens the guard that is pinned in the directory. OSError: ENOENT, there is none; ENODEV,
        its interface is gone; EPROTO, another version pinned it.
        """
    def close(self) -> None:
        """Closes the session; the guard itself stays. Calling it again has no effect."""
    def rules(self) -> list[RuleRecord]:
        """Returns the rules, in the order in which packets are compared with them."""
    def replace(self, records: Sequence[RuleRecord]) -> None:
        """Replaces all rules at once; those whose slot is not SLOT_NEW keep their counters."""
    def counters(self) -> list[tuple[int, int, int, int]]:
        """Returns, for each slot: (packets, bytes, dropped, last seen by CLOCK_MONOTONIC in ns or
        0).
        """
    def known_qps(self) -> list[int]:
        """Returns the numbers of the QPs that exist, in order."""
    def change_qps(self, add: Collection[int], remove: Collection[int]) -> None:
        """Adds QPs, then removes others. The bit of a QP that is in neither list never changes."""
