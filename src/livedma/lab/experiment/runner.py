"""Measuring: every run in a fresh process, and the points taking turns."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from livedma.errors import LivedmaError
from livedma.lab.experiment.company import Company
from livedma.lab.experiment.design import Experiment, Form, LeftOut, Measures, Point
from livedma.lab.experiment.runs import Row, Runs

__all__ = ["SEED", "Progress", "measure"]

SEED = 1

Progress = Callable[[int, int, float | None, Point], None]
"""Is told how many runs are done, of how many, the seconds that are left, and the next point."""

_FAILED, _LEFT_OUT, _MEASURED = range(3)
_MUCH_COMPANY = 0.15  # of the processors' time: such a run is made again, if there is time
_TRIES = 3
_END_S = 5.0


def measure(
    experiment: Experiment, form: Form, progress: Progress, seed: int = SEED
) -> tuple[Runs, float]:
    """All points, once each turn, every turn in another order; and the seconds that it took.

    A point that this machine cannot measure is not tried again. A run that others disturbed is, and
    the least disturbed counts; a quarter as many runs as there are may be made again so.
    """
    with experiment.around(form):
        return _measure(experiment, form, progress, seed)


def _measure(
    experiment: Experiment, form: Form, progress: Progress, seed: int
) -> tuple[Runs, float]:
    points = experiment.points(form)
    turns = experiment.repetitions(form)
    total, started_s = len(points) * turns, time.monotonic()
    shuffle = random.Random(seed).shuffle
    rows: dict[tuple[int, int], Row] = {}
    hopeless: dict[int, str] = {}
    spare = total // 4
    for turn in range(turns):
        order = list(range(len(points)))
        shuffle(order)
        for index in order:
            done = len(rows)
            left_s = (time.monotonic() - started_s) / done * (total - done) if done else None
            progress(done, total, left_s, points[index])
            if index in hopeless:
                row = Row(points[index], turn, done, {}, hopeless[index], is_left_out=True)
            else:
                row = _one(experiment, points[index], turn, done)
                for _ in range(min(_TRIES - 1, spare)):
                    if (row.others_share or 0.0) < _MUCH_COMPANY:
                        break
                    spare -= 1
                    row = _less_disturbed(row, _one(experiment, points[index], turn, done))
                if row.is_left_out:
                    hopeless[index] = row.problem
            rows[index, turn] = row
    return Runs([rows[key] for key in sorted(rows)]), time.monotonic() - started_s


def _less_disturbed(row: Row, again: Row) -> Row:
    if again.others_share is None or row.others_share is None:
        return row
    return min(row, again, key=lambda each: each.others_share or 0.0)


def _one(experiment: Experiment, point: Point, turn: int, order: int) -> Row:
    kind, found, others_share = _in_fresh_process(experiment, point)
    if kind == _MEASURED:
        assert isinstance(found, dict)
        return Row(point, turn, order, found, others_share=others_share)
    return Row(point, turn, order, {}, str(found), is_left_out=kind == _LEFT_OUT)


_Result = tuple[int, Measures | str, float | None]


def _in_fresh_process(experiment: Experiment, point: Point) -> _Result:
    # A server that has imported everything forks them: nothing of one run is left for the next,
    # and none has to wait for Python to start.
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
        _end(process.pid)
        process.join()
        process.close()
        ours.close()


def _end(pid: int | None) -> None:
    """Whatever is left of the process, and of those that it started."""
    if pid is None:
        return
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _run(experiment: Experiment, point: Point, pipe: Connection) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asked for it ends us
    company = Company()
    try:
        result: _Result = _MEASURED, dict(experiment.run(point)), company.share()
    except LeftOut as reason:
        result = _LEFT_OUT, str(reason), None
    except (LivedmaError, OSError, MemoryError) as error:
        result = _FAILED, f"{type(error).__name__}: {error}", None
    pipe.send(result)
    pipe.close()
