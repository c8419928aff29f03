# SPDX-License-Identifier: BSD-2-Clause
"""The policy `static` does nothing. The other policies are measured against it."""

from __future__ import annotations

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.policy.plan import Demand, NoRoom, Plan, Room
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = ["StaticPolicy"]


class StaticPolicy:
    """Leaves each connection with what it began with, and refuses no session."""

    name = "static"
    may_refuse = False

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return None
