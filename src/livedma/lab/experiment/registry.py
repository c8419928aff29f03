"""The experiments there are."""

from __future__ import annotations

from livedma.lab.experiment.design import Experiment

__all__ = ["EXPERIMENTS", "by_name"]

EXPERIMENTS: tuple[Experiment, ...] = ()


def by_name(name: str) -> Experiment:
    """Raises KeyError."""
    return {experiment.name: experiment for experiment in EXPERIMENTS}[name]
