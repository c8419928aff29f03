# SPDX-License-Identifier: BSD-2-Clause
"""Metrics of a watch: sums of all views, bounded series, and an endpoint that answers."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openly
from prometheus_client.parser import text_string_to_metric_families as parse
from tests.ui.made_views import inside_nfsd, nothing, view

from livedma.ui.metrics.reference import with_table
from livedma.ui.watch.endpoint import Endpoint
from livedma.ui.watch.families import FAMILIES
from livedma.ui.watch.metrics import WatchMetrics
from livedma.ui.web.where import Where, listening

OPENLY = "application/openmetrics-text; version=1.0.0"
PAGE = Path(__file__).parents[2] / "docs" / "watch.md"


def families(metrics: WatchMetrics, accept: str = OPENLY) -> dict[str, Metric]:
    body, _ = metrics.render(accept)
    read = parse_openly if accept == OPENLY else parse
    return {one.name.removeprefix("livedma_watch_"): one for one in read(body.decode())}


def value(found: dict[str, Metric], name: str, suffix: str = "", **labels: str) -> float:
    return sum(
        one.value
        for one in found[name].samples
        if one.name.endswith(suffix) and labels.items() <= one.labels.items()
    )


@pytest.mark.parametrize("accept", [OPENLY, "text/plain"])
def test_views_add_up(accept: str) -> None:
    metrics = WatchMetrics(100)
    views = [view(5, seed=seed) for seed in range(3)]
    for one in views:
        metrics.add(one)
    found = families(metrics, accept)
    operations = sum(each.operations for one in views for each in one.connections)
    assert value(found, "operations") == operations
    for number in (1, 2, 3):
        its = sum(one.connections[number - 1].read_bytes for one in views)
        assert value(found, "connection_read_bytes", connection=str(number)) == its
    id_ = views[0].snapshot.sessions[0].id
    times = [one.snapshot.sessions[0].latency for one in views]
    latency = "session_latency_seconds"
    assert value(found, latency, "_count", session=id_) == sum(one.count for one in times)
    spent_s = sum(one.sum_ns for one in times) / 1e9
    assert value(found, latency, "_sum", session=id_) == pytest.approx(spent_s)
    assert value(found, latency, "seconds", session=id_, quantile="0.5") == pytest.approx(9e-4)


def test_all_that_is_documented_is_there_and_nothing_else() -> None:
    documented = {one.name.removeprefix("livedma_watch_") for one in FAMILIES}
    metrics = WatchMetrics(10)
    metrics.add(inside_nfsd(3))
    assert set(families(metrics)) == documented
    metrics = WatchMetrics(10)
    metrics.add(view(3))
    inside = documented - set(families(metrics))
    assert {"connection_thread_wait_seconds", "connection_limit", "nfsd_threads"} <= inside
    assert not any(one.startswith("session") for one in inside)
    text = PAGE.read_text()
    assert with_table(text, FAMILIES) == text, "run python -m livedma.ui.watch.families on it"


@pytest.mark.parametrize("accept", [OPENLY, "text/plain"])
def test_what_calls_of_nfsd_wait_for_adds_up(accept: str) -> None:
    metrics = WatchMetrics(10)
    for seed in range(3):
        metrics.add(inside_nfsd(3, seed=seed))
    found = families(metrics, accept)
    for name, count, sum_s, p99_s in (
        ("thread_wait", 500, 1.0, 0.003),
        ("storage", 400, 8.0, 0.025),
        ("send_wait", 5, 0.01, 0.004),
    ):
        name = f"connection_{name}_seconds"
        assert value(found, name, "_count", connection="1") == 3 * count
        assert value(found, name, "_sum", connection="1") == pytest.approx(3 * sum_s)
        assert value(found, name, "seconds", connection="1", quantile="0.99") == p99_s
    assert value(found, "connection_last_credits", connection="2") == 300
    limits = {one.labels["limit"] for one in found["connection_limit"].samples if one.value}
    assert limits == {"credits", "storage"}
    assert (value(found, "nfsd_threads"), value(found, "nfsd_threads_busy")) == (16, 4.5)
    assert value(found, "cpu_busy_ratio") == 0.35


def test_before_the_first_view_there_is_little() -> None:
    assert set(families(WatchMetrics(10))) == {"start_time_seconds"}
    metrics = WatchMetrics(10)
    metrics.add(nothing())
    assert value(families(metrics), "sessions") == 0


def test_few_sessions_have_series_of_their_own() -> None:
    metrics = WatchMetrics(4)
    it = view(60)
    for _ in range(2):
        metrics.add(it)
    samples = families(metrics)["session_operations"].samples
    assert len(samples) == 5 and samples[-1].labels == {"session": "other"}
    whole = 2 * sum(one.operations for one in it.snapshot.sessions)
    assert sum(one.value for one in samples) == whole


def test_what_ends_stays_counted() -> None:
    metrics = WatchMetrics(4)
    before, after = view(6), nothing()
    metrics.add(before)
    metrics.add(after)
    found = families(metrics)
    assert value(found, "operations") == sum(one.operations for one in before.connections)
    assert {one.labels["connection"] for one in found["connection_operations"].samples} == {"other"}
    metrics.add(replace(before))  # sessions that were forgotten come again
    assert value(families(metrics), "operations") == 2 * value(found, "operations")


def test_the_endpoint_answers_at_one_path_and_ends() -> None:
    metrics = WatchMetrics(4)
    metrics.add(view(3))
    sock = listening(Where("127.0.0.1", 0))
    address = f"http://127.0.0.1:{sock.getsockname()[1]}"
    with Endpoint(sock, metrics.render):
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
            assert re.search("livedma_watch_sessions 3", answer.read().decode())
        for path, headers, status in (
            ("/", {}, 404),
            ("/metrics", {"Host": "evil.example"}, 421),
            ("/metrics", {"Origin": "http://evil.example"}, 403),
        ):
            request = urllib.request.Request(address + path, headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(request, timeout=30)
            assert refused.value.code == status
            refused.value.close()
        idle = socket.create_connection(sock.getsockname()[:2])  # it does not keep it from ending
    idle.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{address}/metrics", timeout=30)
