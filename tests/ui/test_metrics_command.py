# SPDX-License-Identifier: BSD-2-Clause
"""livedma serve, as it is run: /metrics of its page, and its log in other forms."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.control.live import DrivenLoad, Served, serve, wait_for

from needs import needs

pytestmark = pytest.mark.slow


def scraped(address: str, accept: str) -> tuple[str, str]:
    request = urllib.request.Request(f"http://{address}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def address_of(served: Served) -> str:
    def found() -> str:
        lines = served.log.read_text().splitlines()
        return next((one for one in lines if "web page http://" in one), "")

    return str(wait_for(found).partition("http://")[2].partition("/")[0])


def test_a_scrape_of_a_server_under_load(tmp_path: Path) -> None:
    options = ("--web", "127.0.0.1:0", "--metrics-sessions", "3")
    with serve(tmp_path, *options) as served, DrivenLoad(8) as load:
        load.sessions(8)
        address = address_of(served)
        wait_for(lambda: 'livedma_connection_limit{connection="1"' in scraped(address, "")[0])
        openly, kind = scraped(address, "application/openmetrics-text; version=1.0.0")
        plainly, plain_kind = scraped(address, "text/plain")
    assert (kind, plain_kind) == (
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        "text/plain; version=0.0.4; charset=utf-8",
    )
    families = {one.name: one for one in text_string_to_metric_families(openly)}
    sessions = {one.labels["session"] for one in families["livedma_session_operations"].samples}
    assert len(sessions) == 4 and "other" in sessions
    needs(shutil.which("promtool"), "promtool is not installed (package prometheus)")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=plainly,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_log_of_objects(tmp_path: Path) -> None:
    with serve(tmp_path, "--log-format", "json", "--policy", "static") as served:
        served.control.ask("policy", name="extend")
    lines = [json.loads(line) for line in served.log.read_text().splitlines()]
    assert {"time", "level", "kind", "connection", "text", "data"} <= set.intersection(
        *(set(line) for line in lines)
    )
    (decision,) = [line for line in lines if line["kind"] == "policy"]
    assert (decision["text"], decision["connection"]) == ("static -> extend", None)
    assert any(line["text"].startswith("control socket") for line in lines)
