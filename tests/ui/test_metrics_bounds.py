# SPDX-License-Identifier: BSD-2-Clause
"""However many sessions and connections come and go: series stay few, and sums stay exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.control.live import LIMIT_S, loaded, ran, wait_for
from tests.ui.metered import Metered, Scrape, metered

from livedma.nfs.load import Plan, Result

pytestmark = pytest.mark.slow

SESSIONS = 10
CROWD = Plan(sessions=300, depth=1, size=4096, seconds=LIMIT_S, file_bytes=16384, rate=1500)
VISITORS = Plan(sessions=30, depth=1, size=4096, seconds=1, file_bytes=16384, connections=3)


def read(results: list[Result]) -> int:
    return sum(one.counters.read_bytes for one in results)


def test_300_sessions_have_10_series(tmp_path: Path) -> None:
    with metered(tmp_path, sessions=SESSIONS) as server:
        with loaded(CROWD) as results:
            wait_for(lambda: len(server.service.server.sessions) >= CROWD.sessions)
            first = Scrape(server.metrics)
            second = wait_for(lambda: _later(Scrape(server.metrics), first))
        wait_for(lambda: not server.service.rdma[0].connections)
        last = Scrape(server.metrics)
    # The load opens its files by a session of its own, which may have been shown before it ended.
    assert len(first.shown("session")) == SESSIONS
    assert len(second.shown("session")) in (SESSIONS - 1, SESSIONS)
    # Sessions count what their connection does, bar what is under way.
    by_session = second.by("livedma_session_read_bytes_total", "session")
    assert by_session["other"] > max(value for key, value in by_session.items() if key != "other")
    assert last.shown("session") == last.shown("connection") == set()
    assert last.value("livedma_read_bytes_total") == read(results)
    assert last.value("livedma_session_read_bytes_total", session="other") <= read(results)


def _later(scrape: Scrape, first: Scrape) -> Scrape | None:
    name = "livedma_session_read_bytes_total"
    now, before = (one.by(name, "session") for one in (scrape, first))
    grown = [key for key, value in before.items() if now.get(key, 0) > value]
    return scrape if len(grown) >= SESSIONS else None


def test_who_comes_and_goes_makes_no_more_series(tmp_path: Path) -> None:
    """Three crowds, one after the other, in less time than a label rests."""
    ever: set[str] = set()
    results: list[Result] = []
    with metered(tmp_path, sessions=SESSIONS) as server:
        other = 0.0
        for _ in range(3):
            with loaded(VISITORS) as result:
                wait_for(lambda: len(server.service.server.sessions) >= VISITORS.sessions)
                _wait_for_reads(server, read(results))
                ever |= Scrape(server.metrics).shown("session")
            wait_for(lambda: not server.service.rdma[0].connections)
            results += result
            scrape = Scrape(server.metrics)
            ever |= scrape.shown("session")
            assert scrape.value("livedma_read_bytes_total") == read(results)
            now = scrape.value("livedma_session_read_bytes_total", session="other")
            assert now >= other
            other = now
    assert 0 < len(ever) <= SESSIONS
    assert other > 0


def _wait_for_reads(server: Metered, before: int) -> None:
    wait_for(lambda: Scrape(server.metrics).value("livedma_read_bytes_total") > before)


def test_nobody_looked_and_nothing_is_lost(tmp_path: Path) -> None:
    with metered(tmp_path, sessions=0) as server:
        results = [ran(VISITORS)]
        wait_for(lambda: not server.service.rdma[0].connections)
        scrape = Scrape(server.metrics)
    assert scrape.value("livedma_read_bytes_total") == read(results)
    assert scrape.by("livedma_session_read_bytes_total", "session") == {"other": read(results)}
    counted = scrape.value("livedma_session_operations_total", session="other")
    assert counted == scrape.value("livedma_session_latency_seconds_count", session="other")
    assert counted > results[0].counters.reads
