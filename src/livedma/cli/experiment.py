# SPDX-License-Identifier: BSD-2-Clause
"""livedma experiment: makes measurements that can be repeated, and answers a question by them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livedma.cli import units
from livedma.cli.paint import Paint
from livedma.errors import LivedmaError

if TYPE_CHECKING:
    from livedma.lab.experiment.design import Form

_EXAMPLES = """examples:
  livedma experiment                           which there are, and what they ask
  livedma experiment pool                      minutes: the table and the answer
  livedma experiment pool --out results        also the data (Parquet), plots and a page
  livedma experiment mlock                     as root: which pages the kernel moves
  livedma experiment paging --full --out results
  livedma experiment pages --json | jq -r '.answer[]'
  livedma experiment ramp --out results        15 minutes: sessions pile up, under each policy

Exit status 1 if a run failed; what this machine cannot do is left out, and said."""

_EVERY_S = 10.0  # without a terminal: the time between two lines


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "experiment",
        help="measure what a way to use memory costs, and get an answer",
        description="Measures one question on this machine: points in turns, each "
        "run in a fresh process, and an answer computed from the data. Without NAME: lists them.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("name", metavar="NAME", nargs="?", help="as listed without a name")
    add("--out", metavar="DIR", type=Path, help="keep data, plots and a page there")
    add("--full", action="store_true", help="all points, more turns: takes many minutes")
    add(
        "--repeats",
        type=units.positive,
        metavar="N",
        help="turns (ramp, ahead: 5; others: 4, full: 7)",
    )
    add(
        "--store",
        choices=("delay", "disk"),
        help="ramp: a store in memory that takes 20 ms, or this machine's disk (delay)",
    )
    add("--seed", type=int, default=1, metavar="N", help="of the order of the runs (1)")
    add("--json", action="store_true", help="everything as one JSON object")
    parser.set_defaults(run=run, wrong_use=parser.error)


class _Progress:
    """Shows which run is next and how long the rest takes, in one line of a terminal; elsewhere it
    prints a line at most every _EVERY_S.
    """

    def __init__(self, describe: Any) -> None:
        self._describe, self._last_s = describe, time.monotonic()
        self._paint = Paint.on_errors()
        self._is_terminal = self._paint.is_terminal

    def __call__(self, done: int, total: int, left_s: float | None, point: Any) -> None:
        left = "" if left_s is None else f", about {max(round(left_s), 1)} s left"
        text = f"{done + 1} of {total}{left}: {self._describe(point)}"
        if self._is_terminal:
            print(f"\r\x1b[K{text[: self._paint.width - 1]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self._last_s >= _EVERY_S:
            self._last_s = time.monotonic()
            print(f"livedma: {text}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    from livedma.lab.experiment import registry
    from livedma.lab.experiment.ramp import Ramp

    if args.name is None:
        if args.out or args.full:
            args.wrong_use("NAME is missing: `livedma experiment` lists them")
        return _list(args.json)
    try:
        experiment = registry.by_name(args.name)
    except KeyError:
        names = ", ".join(each.name for each in registry.EXPERIMENTS)
        args.wrong_use(f"no experiment is called {args.name!r}: there are {names}")
    experiment.repeats = args.repeats
    if isinstance(experiment, Ramp):
        experiment.use_store(args.store or "delay")
    elif args.store is not None:
        args.wrong_use(f"--store is for ramp: {args.name} has none")
    return _make(args, experiment)


def _list(as_json: bool) -> int:
    from livedma.lab.experiment.registry import EXPERIMENTS

    if as_json:
        print(json.dumps([{"name": e.name, "question": e.question} for e in EXPERIMENTS]))
    else:
        for experiment in EXPERIMENTS:
            print(f"{experiment.name:9} {experiment.question}")
    return 0


def _make(args: argparse.Namespace, experiment: Any) -> int:
    from livedma.lab.experiment.data import records
    from livedma.lab.experiment.host import describe_host
    from livedma.lab.experiment.report import Report
    from livedma.lab.experiment.results import about, prepare, write
    from livedma.lab.experiment.runner import measure
    from livedma.lab.experiment.summary import as_text

    if args.out is not None:
        prepare(args.out)
    form: Form = "full" if args.full else "quick"
    host, progress = describe_host(), _Progress(experiment.describe)
    try:
        runs, seconds = measure(experiment, form, progress, args.seed)
    finally:
        progress.clear()
    if all(row.problem for row in runs):
        raise LivedmaError(f"nothing could be measured: {next(iter(runs)).problem}")
    report = Report(experiment, form, args.seed, runs, seconds, host)
    files = [] if args.out is None else write(report, args.out)
    if args.json:
        found = {**about(report), "runs": records(runs), "files": [str(path) for path in files]}
        print(json.dumps(found))
    else:
        print(f"{experiment.question}\n")
        if table := as_text(experiment, runs):
            print(f"{table}\n")
        for warning in report.warnings:
            print(f"WARNING: {warning}")
        print(report.basis)
        for sentence in (*report.answer, *report.problems):
            print(f"- {sentence}")
        if files:
            print(f"\n{len(files)} files in {args.out}; read {files[-1]}")
        else:
            print("\n--out DIR keeps the data, plots and a page")
    return 1 if runs.failures else 0
