# SPDX-License-Identifier: BSD-2-Clause
"""Lists the experiments."""

from __future__ import annotations

from livedma.lab.experiment.ahead import Aheads
from livedma.lab.experiment.design import Experiment
from livedma.lab.experiment.diagnosis import Diagnoses
from livedma.lab.experiment.mlock import Locks
from livedma.lab.experiment.pages import Pages
from livedma.lab.experiment.paging import Paging
from livedma.lab.experiment.pool import Pools
from livedma.lab.experiment.ramp import Ramp
from livedma.lab.experiment.step import Steps
from livedma.lab.experiment.tide import Tides

__all__ = ["EXPERIMENTS", "by_name"]

EXPERIMENTS: tuple[Experiment, ...] = (
    Pools(),
    Paging(),
    Pages(),
    Locks(),
    Ramp(),
    Diagnoses(),
    Tides(),
    Steps(),
    Aheads(),
)


def by_name(name: str) -> Experiment:
    """Returns an experiment; raises KeyError."""
    return {experiment.name: experiment for experiment in EXPERIMENTS}[name]
