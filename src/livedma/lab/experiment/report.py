# SPDX-License-Identifier: BSD-2-Clause
"""Reports an experiment after its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from livedma.lab.experiment.design import Experiment, Form
from livedma.lab.experiment.quantities import quantity
from livedma.lab.experiment.runs import Runs
from livedma.wire.words import amount

__all__ = ["Report"]

_MUCH_OTHER_LOAD = 0.15
_OFTEN = 0.25  # of the runs
_FEW = 3  # with fewer runs there is no spread to speak of


@dataclass(frozen=True)
class Report:
    experiment: Experiment
    form: Form
    seed: int
    runs: Runs
    seconds: float
    host: Mapping[str, str]

    @property
    def answer(self) -> list[str]:
        return self.experiment.answer(self.runs)

    @property
    def basis(self) -> str:
        """Says how many runs the answer is of, and what its figures are."""
        least, most = self._runs_of_a_point()
        many = amount(most, "run") if least == most else f"{least} to {amount(most, 'run')}"
        if self.experiment.is_over_points:
            measured = len({tuple(row.point.items()) for row in self.runs if not row.problem})
            return f"Of {amount(measured, 'point')}, with {many} of each."
        if most == 1:
            return "Of one run of each point."
        return (
            f"Of {many} of each point. Figures are medians unless they say otherwise; in brackets "
            "are the least and the greatest where runs differ."
        )

    @property
    def warnings(self) -> list[str]:
        """Returns what a reader has to know before the answer."""
        least, most = self._runs_of_a_point()
        found = []
        if self.experiment.is_over_points:
            return self._other_load()
        if most < _FEW:
            found.append(
                f"There {'is' if most == 1 else 'are'} {amount(most, 'run')} of each point: "
                "another time the answer may be another one. --repeats 5 makes five."
            )
        elif least < _FEW:
            found.append(f"Some points have {amount(least, 'run')} alone.")
        return [*found, *self._other_load()]

    def _runs_of_a_point(self) -> tuple[int, int]:
        """Returns the least and the most that have figures; points without any are problems."""
        measured = (tuple(row.point.items()) for row in self.runs if not row.problem)
        counts = Counter(measured).values()
        return min(counts, default=0), max(counts, default=0)

    @property
    def repetitions(self) -> int:
        return self.experiment.repetitions(self.form)

    @property
    def command(self) -> str:
        full = " --full" if self.form == "full" else ""
        options = f"{full}{self.experiment.options()}"
        return f"livedma experiment {self.experiment.name}{options} --seed {self.seed} --out DIR"

    @property
    def problems(self) -> list[str]:
        """Returns sentences about points that have no figures."""
        describe = self.experiment.describe
        found = [
            f"Left out ({'; '.join(describe(point) for point in points)}): {reason}"
            for reason, points in self.runs.left_out.items()
        ]
        failed = (f"Failed ({describe(row.point)}): {row.problem}" for row in self.runs.failures)
        return [*found, *dict.fromkeys(failed)]

    def _other_load(self) -> list[str]:
        shares = [row.others_share for row in self.runs if row.others_share is not None]
        busy = [share for share in shares if share >= _MUCH_OTHER_LOAD]
        if not busy or len(busy) < _OFTEN * len(shares):
            return []
        return [
            f"The machine was busy: in {len(busy)} of {amount(len(shares), 'measurement')} other "
            "programs, or other guests of its host, took more than "
            f"{quantity(_MUCH_OTHER_LOAD, 'share')} of the processors' time "
            f"({quantity(max(busy), 'share')} at most). Times and throughput are worth little; "
            "measure again when it is quiet."
        ]
