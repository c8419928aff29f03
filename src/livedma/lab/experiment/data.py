# SPDX-License-Identifier: BSD-2-Clause
"""Stores the data of an experiment as one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from livedma.lab.experiment.design import Column, Experiment
from livedma.lab.experiment.runs import Row, Runs

__all__ = ["load", "records", "save"]

_ABOUT = b"livedma"


def records(runs: Runs) -> list[dict[str, Any]]:
    """Returns one flat record for each run."""
    return [
        {
            **row.point,
            "repetition": row.repetition,
            "order": row.order,
            **row.measures,
            "problem": row.problem or None,
            "is_left_out": row.is_left_out,
            "others_share": row.others_share,
        }
        for row in runs
    ]


def save(path: Path, experiment: Experiment, runs: Runs, about: Mapping[str, Any]) -> None:
    """Writes a row for each run. Metadata: of a column its label and unit, of the file `about`."""
    columns = (*experiment.factors, *experiment.measures)
    rows = records(runs)
    fields = [
        *(_field(column, rows) for column in columns),
        pyarrow.field("repetition", pyarrow.int32()),
        pyarrow.field("order", pyarrow.int32()),
        pyarrow.field("problem", pyarrow.string()),
        pyarrow.field("is_left_out", pyarrow.bool_()),
        pyarrow.field("others_share", pyarrow.float64()),
    ]
    schema = pyarrow.schema(fields, {_ABOUT: json.dumps(about).encode()})
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)


def _field(column: Column, rows: list[dict[str, Any]]) -> Any:
    values = [value for row in rows if (value := row.get(column.name)) is not None]
    if any(isinstance(value, str) for value in values):
        kind = pyarrow.string()
    elif values and all(isinstance(value, bool) for value in values):
        kind = pyarrow.bool_()
    elif values and all(isinstance(value, int) for value in values):
        kind = pyarrow.int64()
    else:
        kind = pyarrow.float64()
    return pyarrow.field(column.name, kind, metadata={"label": column.label, "unit": column.unit})


def load(path: Path, experiment: Experiment) -> tuple[Runs, dict[str, Any]]:
    """Returns what save wrote: the runs, and the facts about them."""
    table = pyarrow.parquet.read_table(path)
    factors = [factor.name for factor in experiment.factors]
    measures = [measure.name for measure in experiment.measures]
    rows = [
        Row(
            point={name: record[name] for name in factors},
            repetition=record["repetition"],
            order=record["order"],
            measures={name: v for name in measures if (v := record[name]) is not None},
            problem=record["problem"] or "",
            is_left_out=record["is_left_out"],
            others_share=record["others_share"],
        )
        for record in table.to_pylist()
    ]
    return Runs(rows), json.loads(table.schema.metadata[_ABOUT])
