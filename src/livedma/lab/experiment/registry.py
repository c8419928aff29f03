"""The experiments there are."""

from __future__ import annotations

from livedma.lab.experiment.design import Experiment
from livedma.lab.experiment.pages import Pages

__all__ = ["EXPERIMENTS", "by_name"]

EXPERIMENTS: tuple[Experiment, ...] = (Pages(),)


def by_name(name: str) -> Experiment:
    """Raises KeyError."""
    return {experiment.name: experiment for experiment in EXPERIMENTS}[name]
