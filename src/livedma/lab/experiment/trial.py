# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server and a driven load on a stage, and takes what is seen of both meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from livedma.errors import LabError
from livedma.lab.experiment.design import LeftOut
from livedma.lab.experiment.settling import Event
from livedma.lab.experiment.situation import Situation
from livedma.lab.impairment import Rule
from livedma.lab.stage import Stage

__all__ = ["SEED", "ProcessorTimes", "State", "Trial"]

SEED = 1  #: of the places that are read, and of the packets that are lost

_SECONDS_MOST = 3600.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessorTimes:
    at_s: float
    server_s: float
    client_s: float


@dataclass(frozen=True)
class State:
    """Holds the server's totals over all connections over RDMA."""

    connections: int
    mapped_bytes: int
    buffers: int
    buffers_taken: int
    credits: int


class Trial:
    """Runs a server and a load. policy, options: the server's. sessions: the most there will be.
    Raises LabError and ControlError.
    """

    def __init__(
        self, situation: Situation, policy: str, *, sessions: int, options: Sequence[str] = ()
    ) -> None:
        self.situation = situation
        rules = []
        if situation.lost_share:
            if os.geteuid():
                raise LeftOut("a wire that loses packets needs root")
            rules.append(Rule("drop", situation.lost_share))
        with ExitStack() as stack:
            self.stage = stack.enter_context(Stage(rules=rules, on_disk=situation.is_on_disk))
            served = (*situation.serve_options(), f"--policy={policy}", *options)
            self.server = self.stage.serve(*served)
            self.load = self.stage.drive(
                *situation.load_options(sessions), f"--seconds={_SECONDS_MOST:g}", f"--seed={SEED}"
            )
            self.control = self.server.control
            self._began_s = time.monotonic()
            self._seen = 0  # the last event
            self.more_slots: set[str] = set()  #: sessions that were given more slots
            self.first = self.state()
            self._stack = stack.pop_all()

    # The load.

    def have_sessions(self, number: int, per_s: float = 0) -> dict[str, Any]:
        """Waits until so many have begun or were refused; per_s: their rate, 0: all at once."""
        return self.load.ask(f"sessions {number} {per_s:.0f}", timeout_s=120.0)

    def interval(self) -> dict[str, Any]:
        """Returns the load's figures since the last interval."""
        return self.load.ask("interval")

    def finish(self) -> dict[str, Any]:
        """Ends the load; raises LabError unless every answer came and was right."""
        total = self.load.finish()
        for what in ("wrong_data", "unanswered", "lost"):
            if total[what]:
                raise LabError(f"at the end the load has {what}: {total[what]}")
        return total

    # The server.

    def state(self) -> State:
        found = [one for one in self.control.ask("connections") if one["kind"] == "rdma"]
        names = ("mapped", "buffers", "buffers_taken", "credits")
        return State(len(found), *(sum(one[name] for one in found) for name in names))

    def events(self, wait_s: float = 0.0) -> list[Event]:
        """Returns the controller's events since the last call; after_s: since the trial began."""
        found = self.control.ask("decisions", after=self._seen, wait=wait_s)["events"]
        if found:
            self._seen = found[-1]["number"]
        for event in found:
            for action in event["data"].get("actions", ()):
                if action["action"] == "SetSlots":
                    self.more_slots.add(action["session"])
                elif action["action"] == "Extend":
                    self.more_slots.update(action["slots"])
        return [{**event, "after_s": event["at_s"] - self._began_s} for event in found]

    # Both.

    def processor_times(self) -> ProcessorTimes:
        """Returns the time spent so far by all threads."""
        return ProcessorTimes(
            time.monotonic(), _processor_s(self.server.pid), _processor_s(self.load.pid)
        )

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _processor_s(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, after_name[11:13])) / _TICKS
