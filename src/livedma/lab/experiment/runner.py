# SPDX-License-Identifier: BSD-2-Clause
"""Measures every run in a fresh process, and lets the points take turns."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from livedma.errors import LivedmaError
from livedma.lab.experiment.design import Experiment, Form, LeftOut, Measures, Point
from livedma.lab.experiment.other_load import OtherLoad
from livedma.lab.experiment.runs import Row, Runs

__all__ = ["SEED", "Progress", "measure"]

SEED = 1

Progress = Callable[[int, int, float | None, Point], None]
"""Hears how many runs are done, of how many, the seconds that are left, and the next point."""

_FAILED, _LEFT_OUT, _MEASURED = range(3)
_MUCH_OTHER_LOAD = 0.15  # of the processors' time: a run with more is repeated, if there is time
_TRIES = 3
_END_S = 5.0


def measure(
    experiment: Experiment, form: Form, progress: Progress, seed: int = SEED
) -> tuple[Runs, float]:
    """Measures all points, once each turn, in another order each time; returns the seconds, too.

    A point that this machine cannot measure is not tried again. A run that other programs disturbed
    is repeated, and the least disturbed run counts; at most a quarter of the runs are repeated.
    """
    with experiment.around(form):
        return _measure(experiment, form, progress, seed)


def _measure(
    experiment: Experiment, form: Form, progress: Progress, seed: int
) -> tuple[Runs, float]:
    points = experiment.points(form)
    turns = [
        [index for index, point in enumerate(points) if experiment.takes_part(point, turn, form)]
        for turn in range(experiment.repetitions(form))
    ]
    total, started_s = sum(map(len, turns)), time.monotonic()
    shuffle = random.Random(seed).shuffle
    rows: dict[tuple[int, int], list[Row]] = {}
    hopeless: dict[int, str] = {}
    spare = total // 4
    for turn, order in enumerate(turns):
        shuffle(order)
        for index in order:
            done = len(rows)
            left_s = (time.monotonic() - started_s) / done * (total - done) if done else None
            progress(done, total, left_s, points[index])
            if index in hopeless:
                found = _without_figures(
                    experiment, points[index], turn, done, hopeless[index], is_left_out=True
                )
            else:
                found = _one(experiment, points[index], turn, done)
                for _ in range(min(_TRIES - 1, spare)):
                    if _others_share(found) < _MUCH_OTHER_LOAD:
                        break
                    spare -= 1
                    found = _less_disturbed(found, _one(experiment, points[index], turn, done))
                if found[0].is_left_out:
                    hopeless[index] = found[0].problem
            rows[index, turn] = found
    in_order = [row for key in sorted(rows) for row in rows[key]]
    return Runs(in_order), time.monotonic() - started_s


def _others_share(rows: list[Row]) -> float:
    return rows[0].others_share or 0.0


def _less_disturbed(rows: list[Row], again: list[Row]) -> list[Row]:
    if rows[0].others_share is None or again[0].others_share is None:
        return rows
    return min(rows, again, key=_others_share)


def _one(experiment: Experiment, point: Point, turn: int, order: int) -> list[Row]:
    """Returns the rows of one run; there is at least one."""
    kind, found, others_share = _in_fresh_process(experiment, point)
    if kind == _MEASURED and isinstance(found, list):
        return [
            Row({**point, **levels}, turn, order, measures, others_share=others_share)
            for levels, measures in found
        ]
    return _without_figures(
        experiment, point, turn, order, str(found), is_left_out=kind == _LEFT_OUT
    )


def _without_figures(
    experiment: Experiment, point: Point, turn: int, order: int, why: str, *, is_left_out: bool
) -> list[Row]:
    full = {factor.name: point.get(factor.name) for factor in experiment.factors}
    return [Row(full, turn, order, {}, why, is_left_out=is_left_out)]


_Result = tuple[int, list[tuple[Point, Measures]] | str, float | None]


def _in_fresh_process(experiment: Experiment, point: Point) -> _Result:
    # A server that has imported everything forks the processes: nothing of one run is left for the
    # next, and none has to wait for Python to start.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([type(experiment).__module__])
    ours, its = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(experiment, point, its))
    process.start()
    its.close()
    try:
        if not ours.poll(experiment.point_limit_s):
            return _FAILED, f"nothing after {experiment.point_limit_s:g} s", None
        try:
            found: _Result = ours.recv()
        except EOFError:
            process.join(_END_S)
            return _FAILED, f"its process ended with {process.exitcode}", None
        process.join(_END_S)
        return found
    finally:
        _end(process)
        process.join()
        process.close()
        ours.close()


def _end(process: BaseProcess) -> None:
    """Kills what is left of the process after it could clean up, and what it started."""
    pid = process.pid
    if pid is None:
        return
    if process.is_alive():
        process.terminate()
        process.join(_END_S)
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _run(experiment: Experiment, point: Point, pipe: Connection) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what has to be undone is undone
    others = OtherLoad()
    try:
        found = [(dict(levels), dict(measures)) for levels, measures in experiment.rows(point)]
        result: _Result = _MEASURED, list(found), others.share()
    except LeftOut as reason:
        result = _LEFT_OUT, str(reason), None
    except (LivedmaError, OSError, MemoryError) as error:
        result = _FAILED, f"{type(error).__name__}: {error}", None
    pipe.send(result)
    pipe.close()
