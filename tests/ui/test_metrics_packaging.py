# SPDX-License-Identifier: BSD-2-Clause
"""The dashboard and the alerts ask for what there is, and the page has all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livedma.ui.metrics.families import FAMILIES
from livedma.ui.metrics.reference import with_table
from needs import needs

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "packaging" / "grafana-dashboard.json"
ALERTS = ROOT / "packaging" / "alerts.yml"
PAGE = ROOT / "docs" / "metrics.md"

_OF_SCRAPES = {"instance", "job"}  # labels that Prometheus adds


def labels_by_sample() -> dict[str, set[str]]:
    found = {}
    for one in FAMILIES:
        labels = {*one.labels, *_OF_SCRAPES}
        if one.kind == "histogram":
            found[one.name + "_bucket"] = labels | {"le"}
            found[one.name + "_count"] = found[one.name + "_sum"] = labels
        else:
            found[one.full_name] = labels
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def dashboard_queries() -> list[str]:
    found = dashboard()
    queries = [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]
    queries += [one["expr"] for one in found["annotations"]["list"]]
    for variable in found["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert asked is not None
            queries.append(f"count by ({asked[2]}) ({asked[1]})")
    return queries


def alert_queries() -> list[str]:
    """Each `expr`, on its line or folded after it."""
    text = re.sub(
        r"expr: >-\n((?: {10}.*\n)+)",
        lambda m: f"expr: {' '.join(m[1].split())}\n",
        ALERTS.read_text(),
    )
    return re.findall(r"^ +expr: (.*)$", text, re.MULTILINE)


def wrong(query: str) -> Iterator[str]:
    """Names and labels in a query that do not exist."""
    known = labels_by_sample()
    names = re.findall(r"\b(?:livedma_\w+|up)\b", query)
    asked: set[str] = set()
    for name in names:
        if name == "up":
            asked |= _OF_SCRAPES
        elif name not in known:
            yield f"{name} is no metric"
        else:
            asked |= known[name]
    for name, matchers in re.findall(r"\b(livedma_\w+|up)\{([^}]*)\}", query):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            if label not in known.get(name, _OF_SCRAPES):
                yield f"{name} has no label {label}"
    for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", query):
        for label in filter(None, map(str.strip, group.split(","))):
            if label not in asked:
                yield f"nothing has the label {label}"


def test_the_dashboard_asks_for_what_there_is() -> None:
    queries = dashboard_queries()
    assert len(queries) > 50
    assert [one for query in queries for one in wrong(query)] == []


def test_alerts_ask_for_what_there_is() -> None:
    queries = alert_queries()
    assert len(queries) == ALERTS.read_text().count("- alert:") > 5
    assert [one for query in queries for one in wrong(query)] == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("rate(livedma_nothing_total[5m])", "no metric"),
        ("rate(livedma_operations[5m])", "no metric"),
        ('livedma_sessions{session="x"}', "no label session"),
        ("sum by (connection) (livedma_sessions)", "nothing has the label connection"),
        ("sum by (le) (livedma_latency_seconds_count)", "nothing has the label le"),
    ],
)
def test_what_is_not_there_is_found(query: str, said: str) -> None:
    assert any(said in one for one in wrong(query))


def test_values_that_queries_name_exist() -> None:
    from livedma.control.diagnose.limits import Limit
    from livedma.control.events import Kind
    from livedma.monitor.snapshot import Source

    known = {
        "kind": set(Kind.__args__),  # type: ignore[attr-defined]
        "limit": {limit.name.lower() for limit in Limit},
        "source": set(Source.__args__),  # type: ignore[attr-defined]
    }
    found = set()
    for query in (*dashboard_queries(), *alert_queries()):
        for label, value in re.findall(r'\b(kind|limit|source)=~?"([^"$]*)"', query):
            found.add(label)
            assert set(value.split("|")) <= known[label], query
    assert found == known.keys()


def test_every_metric_of_a_connection_or_the_host_is_looked_at_somewhere() -> None:
    """What nobody shows or watches is a reason to ask why it is there."""
    asked = " ".join((*dashboard_queries(), *alert_queries()))
    unused = {one.full_name for one in FAMILIES if one.name not in asked}
    assert unused == {
        # the same per connection, or of use only beside others
        "livedma_latency_seconds",
        "livedma_memory_wait_seconds",
        "livedma_send_wait_seconds",
        "livedma_storage_seconds",
        "livedma_storage_queue_seconds",
        "livedma_sessions_operations_total",
        "livedma_sessions_read_bytes_total",
        "livedma_sessions_written_bytes_total",
        "livedma_sessions_memory_wait_seconds_total",
        "livedma_sessions_storage_seconds_total",
        "livedma_native_bytes_total",
        "livedma_native_errors_total",
        "livedma_native_left_total",
        "livedma_cpu_busy_ratio",
        "livedma_tcp_cpu_busy_ratio",
        "livedma_connection_read_bytes_total",
        "livedma_connection_written_bytes_total",
        "livedma_connection_receives_late_total",
        "livedma_connection_unanswered_calls_total",
        "livedma_connection_rnr_naks_total",
        "livedma_connection_naks_total",
        "livedma_connection_retransmissions_total",
        "livedma_connection_credits_max",
        "livedma_connection_receives_posted",
        "livedma_connection_sessions",
        "livedma_connection_degraded",
        "livedma_session_storage_seconds_total",
        "livedma_session_slots",
    }


def test_the_dashboard_can_be_imported() -> None:
    found = dashboard()
    panels = found["panels"]
    assert [one["title"] for one in panels if one["type"] == "row"] == [
        "Overview",
        "Memory",
        "Latency",
        "Sessions",
        "Decisions",
    ]
    assert len({one["id"] for one in panels}) == len(panels) and "id" not in found
    assert found["templating"]["list"][0]["name"] == "datasource"
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        taken = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not taken & places and max(x for x, _ in taken) < 24
        places |= taken
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"]


def test_every_alert_says_what_to_do() -> None:
    anchors = {
        re.sub(r"[^\w-]", "", title.lower())
        for title in re.findall(r"^#+ (.*)$", PAGE.read_text(), re.MULTILINE)
    }
    alerts = re.split(r"\n      - alert: ", ALERTS.read_text())[1:]
    for alert in alerts:
        name = alert.split("\n")[0]
        assert "summary: " in alert and "description: " in alert and "severity: " in alert
        assert f"runbook: docs/metrics.md#{name.lower()}" in alert and name.lower() in anchors


def test_the_table_of_all_metrics_is_current() -> None:
    page = PAGE.read_text()
    assert with_table(page) == page, f"python -m livedma.ui.metrics.reference {PAGE}"


def promtool(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    needs(shutil.which("promtool"), "promtool is not installed (package prometheus)")
    return subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_promtool_takes_the_alerts() -> None:
    done = promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stderr


def test_promtool_understands_all_queries(tmp_path: Path) -> None:
    """Of the dashboard, with what Grafana fills in."""
    filled = {
        "$__rate_interval": "1m",
        "$__interval": "1m",
        "$top": "10",
        "$instance": ".+",
        "$connection": ".+",
    }
    rules = []
    for number, query in enumerate(dashboard_queries()):
        for name, value in filled.items():
            query = query.replace(name, value)
        rules.append({"record": f"query:{number}", "expr": query})
    written = tmp_path / "rules.json"  # JSON is YAML
    written.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", str(written))
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    shutil.copy(ALERTS, tmp_path)
    shutil.copy(Path(__file__).with_name("alerts_test.yml"), tmp_path)
    done = promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
