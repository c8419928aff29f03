# SPDX-License-Identifier: BSD-2-Clause
"""A real server whose metrics are asked for, and what they say, read by the official parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.control.live import running

from livedma.control.running import Controlled, Options
from livedma.nfs.server.service import NfsService
from livedma.ui.metrics import Metrics

OPEN = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"


class Scrape:
    """What was answered; parsed when it is looked at."""

    def __init__(self, metrics: Metrics, accept: str = OPEN) -> None:
        body, self.content_type = metrics.render(accept)
        self.text = body.decode()

    @cached_property
    def families(self) -> dict[str, Metric]:
        """By the names that they were defined with."""
        parse = parse_open if "openmetrics" in self.content_type else parse_text
        return {one.name: one for one in parse(self.text)}

    def shown(self, label: str) -> set[str]:
        """Whatever has series of its own."""
        return set(re.findall(rf'\b{label}="([^"]*)"', self.text)) - {"other"}

    @cached_property
    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        found = {}
        for family in self.families.values():
            for one in family.samples:
                key = one.name, frozenset(one.labels.items())
                assert key not in found, key
                found[key] = one.value
        return found

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Of all samples with this name, by one label."""
        found: dict[str, float] = {}
        for (sample, labels), value in self.samples.items():
            if sample == name:
                key = dict(labels)[label]
                found[key] = found.get(key, 0) + value
        return found


@dataclass(frozen=True)
class Metered:
    service: NfsService
    it: Controlled
    metrics: Metrics


@contextmanager
def metered(
    tmp_path: Path, options: Options | None = None, *, sessions: int = 100, **config: Any
) -> Iterator[Metered]:
    options = options or Options("static", monitor="server")
    with (
        running(tmp_path, options, **{"store_delay_s": 0.0, **config}) as (it, _),
        Metrics(it.service, it.controller, sessions=sessions, fresh_s=0) as metrics,
    ):
        assert it.controller.view(10) is not None
        yield Metered(it.service, it, metrics)
