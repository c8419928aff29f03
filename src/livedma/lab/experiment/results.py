# SPDX-License-Identifier: BSD-2-Clause
"""Writes an experiment's files into a directory."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from livedma.errors import LivedmaError
from livedma.lab.experiment import data
from livedma.lab.experiment.report import Report

__all__ = ["about", "prepare", "write"]


def prepare(path: Path) -> None:
    """Checks before anything is measured that the figures can be written at the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise LivedmaError("plots need matplotlib: pip install 'livedma[plots]'")
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / ".writable").touch()
        (path / ".writable").unlink()
    except OSError as error:
        raise LivedmaError(f"cannot write into {path}: {error.strerror}") from None


def about(report: Report) -> dict[str, Any]:
    """Returns the facts about a run, without its rows."""
    return {
        "experiment": report.experiment.name,
        "question": report.experiment.question,
        "answer": report.answer,
        "basis": report.basis,
        "warnings": report.warnings,
        "problems": report.problems,
        "form": report.form,
        "seed": report.seed,
        "seconds": round(report.seconds, 1),
        "host": dict(report.host),
        "command": report.command,
    }


def write(report: Report, directory: Path) -> list[Path]:
    """Writes the data, the plots and the page; the page is the last of the paths."""
    from livedma.lab.experiment.page import render
    from livedma.lab.experiment.plots import draw

    name, files, plots = report.experiment.name, [], {}
    try:
        files.append(directory / f"{name}.parquet")
        data.save(files[-1], report.experiment, report.runs, about(report))
        for file, records in report.experiment.files(report.runs).items():
            files.append(directory / file)
            files[-1].write_text(json.dumps(records, indent=1))
        for panel in report.experiment.panels(report.runs):
            svg, png = draw(report.experiment, panel, report.runs)
            plots[panel.name] = svg
            files += [directory / f"{name}-{panel.name}{end}" for end in (".svg", ".png")]
            files[-2].write_text(svg)
            files[-1].write_bytes(png)
        files.append(directory / f"{name}.html")
        files[-1].write_text(render(report, plots))
    except OSError as error:
        raise LivedmaError(f"cannot write into {directory}: {error.strerror}") from None
    return files
