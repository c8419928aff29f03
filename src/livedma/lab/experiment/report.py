"""An experiment that was made, and what there is to say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from livedma.lab.experiment.design import Experiment, Form
from livedma.lab.experiment.quantities import quantity
from livedma.lab.experiment.runs import Runs

__all__ = ["Report"]

_MUCH_COMPANY = 0.15


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
    def repetitions(self) -> int:
        return self.experiment.repetitions(self.form)

    @property
    def command(self) -> str:
        full = " --full" if self.form == "full" else ""
        options = f"{full}{self.experiment.options()}"
        return f"livedma experiment {self.experiment.name}{options} --seed {self.seed} --out DIR"

    @property
    def problems(self) -> list[str]:
        """Sentences about points that have no figures, and about what all figures suffer from."""
        describe = self.experiment.describe
        found = [
            f"Left out ({'; '.join(describe(point) for point in points)}): {reason}"
            for reason, points in self.runs.left_out.items()
        ]
        failed = (f"Failed ({describe(row.point)}): {row.problem}" for row in self.runs.failures)
        return [*found, *dict.fromkeys(failed), *self._company()]

    def _company(self) -> list[str]:
        share = self.runs.others_share
        if share < _MUCH_COMPANY:
            return []
        return [
            f"Other programs took {quantity(share, 'share')} of the processors' time meanwhile: "
            "times and throughput are worth little; measure again when the machine is quiet."
        ]
