# SPDX-License-Identifier: BSD-2-Clause
"""Adds more and more sessions to a live server, under each policy, and where memory is not the
limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from livedma.lab.experiment import ablations, ramp_answer
from livedma.lab.experiment.data import records
from livedma.lab.experiment.design import Column, Experiment, Form, Measures, Panel, Point, Section
from livedma.lab.experiment.ramp_answer import EXTEND, FULL_SESSIONS, MEMORY, POLICIES, STATIC
from livedma.lab.experiment.ramp_level import COLUMNS, Timing, measure_level
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.situation import Situation
from livedma.lab.experiment.trial import SEED, Trial

__all__ = ["Ramp"]

_LEVELS = (1, 8, 16, FULL_SESSIONS // 2, FULL_SESSIONS, FULL_SESSIONS * 3 // 2)
_QUICK = Timing(measure_s=2.0, settle_limit_s=8.0)
_FULL = Timing(measure_s=5.0, settle_limit_s=12.0)
_ABLATION_TURNS = 2


class Ramp(Experiment):
    name = "ramp"
    question = (
        "What do sessions get as more and more of them share a connection, under each policy?"
    )
    factors = (
        Column("situation", "what is short"),
        Column("policy", "policy"),
        Column("sessions", "sessions", "count"),
    )
    within = ("sessions",)
    measures = COLUMNS
    brief = (
        "ops_per_s",
        "bytes_per_s",
        "p50_us",
        "p99_us",
        "errors",
        "reconnects",
        "connections",
        "mapped_bytes",
        "refused",
        "pause_us",
    )
    method = (
        "A server and a load, each a process of its own on its own processor, on two hosts of this "
        "machine. The load begins with one session on one connection. From level to level sessions "
        "are added to it, 16 a second, while the others go on; nothing is restarted. Each session "
        "has its own file, writes it, and then reads at random places with a fixed number of "
        "requests under way, the next as soon as one is answered. Every word that is read is "
        "compared with what was written.",
        "At a level the run waits until the controller has done nothing for 1.5 s (or for 8 s in "
        "all; 12 s in the full form), whatever the policy. Then it measures, for 2 s (full: 5 s). "
        "If the controller acts while it is measured, the row says how often. Latency is what "
        "the client sees: from when the request could have been sent, so waiting for a credit "
        "counts. The percentiles are of all requests of that time together.",
        "Memory, data buffers and connections are read from the server at the end of each "
        "measurement. A reconnect is a connection that was lost and made again; connections that a "
        "policy asks for count under connections, and with a migration the longest time that one "
        "of the moved sessions got no answer is shown as pause.",
        "Where something else is short, it is so by construction: the same server and load, with a "
        "store that does only so many accesses at a time, few credits, few slots, lost packets, or "
        "small requests without any delay. There the question is what the controller does: "
        "data buffers that are more at the end than at the beginning are an extension, whatever "
        "the controller says.",
    )
    limits = (
        "Both hosts share this machine's processors and its memory; the device is software. "
        "Hardware has other absolute figures. What carries over is the mechanism: requests that "
        "wait for memory while the rest of the way is free, and what each policy does about it.",
        "The store of the main ramp is slow by decree: each access takes the same time however "
        "many there are. That makes memory the limit over a wide range. A disk that slows down "
        "with depth gains less, and then it is storage that the controller has to name.",
        "The load is closed-loop: a session waits for answers before it asks again, as storage "
        "clients with a queue depth do. Under an open load latency beyond capacity has no bound, "
        "and ratios of latency say nothing. There is one client host; many with a connection each "
        "would have the memory of many windows from the beginning.",
        "Runs are short. What takes minutes (leaks, fragmentation, drift) does not show here; "
        "`livedma experiment tide --full` runs ten minutes.",
    )
    point_limit_s = 180.0

    def __init__(self) -> None:
        self.timing = _QUICK
        self.levels: Sequence[int] = _LEVELS
        self.policies: Sequence[str] = POLICIES
        self.use_store("delay")

    def use_store(self, store: str) -> None:
        """Chooses the store. delay: each access takes 20 ms, the lab's slow disk; disk: this
        machine's own."""
        self.store, self.situation = store, ablations.MEMORY
        if store == "disk":
            self.situation = replace(ablations.MEMORY, store_delay_s=0.0, is_on_disk=True)

    def repetitions(self, form: Form) -> int:
        return self.repeats or (5 if form == "quick" else 9)

    def points(self, form: Form) -> list[Point]:
        self.timing = _QUICK if form == "quick" else _FULL
        main: list[Point] = [{"situation": MEMORY, "policy": policy} for policy in self.policies]
        if self.store == "disk":
            return main
        beside: list[Point] = [
            {"situation": name, "policy": policy}
            for name in ablations.BESIDE
            for policy in self.policies
            if form == "full" or policy in (STATIC, EXTEND)
        ]
        return [*main, *beside]

    def takes_part(self, point: Point, turn: int, form: Form) -> bool:
        return form == "full" or point["situation"] == MEMORY or turn < _ABLATION_TURNS

    def situation_of(self, point: Point) -> Situation:
        name = str(point["situation"])
        return self.situation if name == MEMORY else ablations.BESIDE[name]

    def run(self, point: Point) -> Measures:
        return self.rows(point)[-1][1]

    def rows(self, point: Point) -> list[tuple[Point, Measures]]:
        situation = self.situation_of(point)
        levels = self.levels if point["situation"] == MEMORY else (situation.sessions,)
        with Trial(situation, str(point["policy"]), sessions=max(levels)) as trial:
            found: list[tuple[Point, Measures]] = [
                ({"sessions": level}, measure_level(trial, level, self.timing)) for level in levels
            ]
            trial.finish()
        return found

    def answer(self, runs: Runs) -> list[str]:
        return ramp_answer.answer(runs)

    def panels(self, runs: Runs) -> Sequence[Panel]:
        def panel(name: str, title: str, measure: str, is_log: bool = False) -> Panel:
            return Panel(name, title, "sessions", measure, "policy", {"situation": MEMORY}, is_log)

        return (
            panel("bandwidth", "Bandwidth", "bytes_per_s"),
            panel("p99", "Latency, 99th percentile", "p99_us"),
            panel("p50", "Latency, median", "p50_us"),
            panel("mapped", "Memory mapped, all connections", "mapped_bytes"),
            panel("connections", "Connections", "connections"),
            panel("cpu", "Server's CPU time", "server_cpu_share"),
        )

    def sections(self, runs: Runs) -> Sequence[Section]:
        return ramp_answer.sections(runs)

    def setup(self, form: Form) -> Mapping[str, str]:
        first = self.situation
        where = "a directory of this machine's disk" if first.is_on_disk else "memory (tmpfs)"
        return {
            "hosts": "two network namespaces joined by veth, MTU 9000, RoCE MTU 4096 (without "
            "root: two addresses of loopback)",
            "server": f"livedma serve, {first.server_text}; files in {where}",
            "load": f"livedma load, {first.load_text}, verified; seed {SEED}",
            "levels": ", ".join(map(str, self.levels)) + " sessions, one after the other in a run",
            "policies": ", ".join(self.policies),
            "where something else is short": "; ".join(
                f"{name}: {one.sessions} sessions, {one.load_text}, {one.server_text}"
                for name, one in ablations.BESIDE.items()
            ),
        }

    def files(self, runs: Runs) -> Mapping[str, list[dict[str, Any]]]:
        """Returns the rows of the ramp itself, and apart from them those of other situations."""
        found: dict[str, list[dict[str, Any]]] = {"results.json": [], "ablations.json": []}
        for record in records(runs):
            lines = str(record.get("decisions") or "").splitlines()
            row = {**record, "repeat": record.pop("repetition"), "decisions": lines}
            del row["repetition"]
            found["results.json" if row["situation"] == MEMORY else "ablations.json"].append(row)
        return found

    def options(self) -> str:
        store = "" if self.store == "delay" else f" --store {self.store}"
        return f"{super().options()}{store}"
