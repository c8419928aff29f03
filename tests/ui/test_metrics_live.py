# SPDX-License-Identifier: BSD-2-Clause
"""What a server under load says of itself, against what the load has counted."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path

import pytest
from tests.control.live import DrivenLoad, ran, wait_for
from tests.ui.metered import OPEN, Metered, Scrape, metered

from livedma._native.nfs import TIMES_BOUNDS_NS
from livedma.nfs.load import Plan, Result
from livedma.ui.metrics import Metrics
from livedma.ui.metrics.families import FAMILIES

pytestmark = pytest.mark.slow

CROWD = Plan(sessions=12, depth=2, size=4096, seconds=0.5, file_bytes=16384, connections=2)
MIXED = Plan(sessions=6, depth=4, size=16384, seconds=1.5, rw="mix", connections=2)


def check_histograms(scrape: Scrape) -> int:
    """Buckets are cumulative and end with the count. How many were looked at."""
    found = 0
    for family in scrape.families.values():
        if family.type != "histogram":
            continue
        series: dict[frozenset[tuple[str, str]], dict[str, float]] = {}
        for one in family.samples:
            labels = dict(one.labels)
            kind = labels.pop("le", one.name.rpartition("_")[2])
            series.setdefault(frozenset(labels.items()), {})[kind] = one.value
        for values in series.values():
            count, total = values.pop("count"), values.pop("sum")
            bounds = sorted(values, key=float)
            assert bounds == list(values)
            # Whole nanoseconds that are below a bound are at most one less.
            assert [round(float(one) * 1e9) + 1 for one in bounds[:-1]] == list(TIMES_BOUNDS_NS)
            below = [values[bound] for bound in bounds]
            assert all(one <= two for one, two in pairwise(below)) and below[-1] == count
            # The sum lies between what the buckets allow.
            least = sum(
                (two - one) * float(bound)
                for bound, (one, two) in zip(bounds, pairwise(below), strict=False)
            )
            assert total >= least * 0.999 and (count > 0) == (total > 0)
            found += 1
    return found


def test_counters_agree_with_the_load(tmp_path: Path) -> None:
    with metered(tmp_path) as server:
        before = Scrape(server.metrics)
        counters = ran(MIXED).counters
        wait_for(lambda: not server.service.rdma[0].connections)
        after = Scrape(server.metrics)
        operations = server.service.accelerator.counters["left_shape"]
    assert before.value("livedma_operations_total") == 0
    assert counters.reads > 100 and counters.writes > 100
    assert after.value("livedma_read_bytes_total") == counters.read_bytes
    assert after.value("livedma_written_bytes_total") == (
        counters.written_bytes + counters.filled_bytes
    )
    assert after.value("livedma_sessions_read_bytes_total") == counters.read_bytes
    native = after.by("livedma_native_calls_total", "operation")
    assert native["read"] == counters.reads
    assert native["write"] == counters.writes + counters.fills
    assert after.by("livedma_native_bytes_total", "operation")["read"] == counters.read_bytes
    # All else that was asked for passed Python, and each call was answered and measured once.
    answered = after.value("livedma_operations_total")
    assert (
        answered == sum(native.values()) + after.by("livedma_native_left_total", "reason")["shape"]
    )
    assert after.value("livedma_latency_seconds_count") == answered and operations > 0
    # Connections have gone, and their series; so have sessions.
    assert set(after.by("livedma_connection_operations_total", "connection")) == {"other"}
    assert set(after.by("livedma_session_operations_total", "session")) == {"other"}
    assert check_histograms(after) == 5 + 5 + 1


def test_each_session_agrees_with_the_load(tmp_path: Path) -> None:
    with metered(tmp_path) as server:
        with DrivenLoad(5) as load:
            load.sessions(5)
            seen = wait_for(lambda: _all_read(server, 5))
            load.sessions(0)
            wait_for(
                lambda: (
                    not sum(
                        Scrape(server.metrics).by("livedma_session_in_flight", "session").values()
                    )
                )
            )
            rested = Scrape(server.metrics)
        after = Scrape(server.metrics)
    results = {one["id"]: one for one in load.result["sessions"]}
    assert len(results) == 5 and seen
    read = rested.by("livedma_session_read_bytes_total", "session")
    written = rested.by("livedma_session_written_bytes_total", "session")
    counted = rested.by("livedma_session_latency_seconds_count", "session")
    for name, result in results.items():
        assert read[name] == result["bytes_read"]
        assert written[name] == result["bytes_filled"]
        assert counted[name] == rested.value("livedma_session_operations_total", session=name)
        assert counted[name] >= result["operations"] + result["filled"]
    assert after.value("livedma_read_bytes_total") == sum(
        one["bytes_read"] for one in results.values()
    )
    assert check_histograms(rested) == 5 * (1 + 2) + len(counted)


def test_buckets_are_sums_of_the_servers_own(tmp_path: Path) -> None:
    with metered(tmp_path, store_delay_s=0.002) as server, DrivenLoad(3) as load:
        load.sessions(3)
        wait_for(lambda: _all_read(server, 3))
        load.sessions(0)
        (connection,) = server.service.rdma[0].connections
        number = str(connection.number)
        wait_for(lambda: not connection.statistics()["in_progress"])
        raw, scrape = connection.statistics(), Scrape(server.metrics)
    for times, name in (
        ("latency", "latency_seconds"),
        ("buffer_waits", "memory_wait_seconds"),
        ("storage", "storage_seconds"),
        ("storage_queue", "storage_queue_seconds"),
    ):
        count, sum_ns, _, buckets = raw[times]
        name = f"livedma_connection_{name}"
        assert count == scrape.value(f"{name}_count", connection=number)
        assert sum_ns / 1e9 == scrape.value(f"{name}_sum", connection=number)
        shown = {
            dict(labels)["le"]: value
            for (sample, labels), value in scrape.samples.items()
            if sample == f"{name}_bucket" and ("connection", number) in labels
        }
        for le, value in shown.items():
            assert value == sum(many for least_ns, many in buckets if least_ns <= float(le) * 1e9)
    assert raw["latency"][0] > 100 and raw["storage"][0] > 100


def _all_read(server: Metered, sessions: int) -> dict[str, float] | None:
    found = Scrape(server.metrics).by("livedma_session_read_bytes_total", "session")
    reading = {key: value for key, value in found.items() if value and key != "other"}
    return reading if len(reading) == sessions else None


def test_all_families_are_there_and_in_both_forms(tmp_path: Path) -> None:
    optional = {
        "livedma_budget_bytes",
        "livedma_connection_room_sessions",
        "livedma_tcp_cpu_busy_ratio",
    }

    def empty() -> set[str]:
        families = Scrape(server.metrics).families.items()
        return {name for name, family in families if not family.samples} - optional

    with metered(tmp_path) as server, DrivenLoad(2) as load:
        load.sessions(2)
        wait_for(lambda: _all_read(server, 2))
        wait_for(lambda: not empty())  # what the controller sees comes with its next look
        load.sessions(0)
        openly, plainly = Scrape(server.metrics), Scrape(server.metrics, "text/plain")
        anything = [Scrape(server.metrics, one) for one in ("", "*/*", "text/plain;version=x")]
    assert openly.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert plainly.content_type.startswith("text/plain; version=0.0.4")
    assert {one.content_type for one in anything} == {plainly.content_type}
    assert openly.text.endswith("# EOF\n") and "# EOF" not in plainly.text
    defined = {one.name: one for one in FAMILIES}
    shown = {name: one for name, one in openly.families.items() if name.startswith("livedma_")}
    assert shown.keys() == defined.keys()
    for name, family in shown.items():
        assert (family.type, family.documentation) == (defined[name].kind, defined[name].text)
        assert family.samples or name in optional, name
        for one in family.samples:
            assert one.labels.keys() - {"le"} == set(defined[name].labels), one
    assert "process_resident_memory_bytes" in openly.families
    names = {one.name for family in openly.families.values() for one in family.samples}
    assert names == {one.name for family in plainly.families.values() for one in family.samples}


def test_what_is_so_now_is_what_the_controller_sees(tmp_path: Path) -> None:
    with metered(tmp_path, store_delay_s=0.02) as server, DrivenLoad(32) as load:
        load.sessions(32)
        scrape = wait_for(lambda: _degraded(server))
        view, sessions = server.it.controller.view(), len(server.service.server.sessions)
    assert view is not None
    (connection,) = view.snapshot.connections
    number = str(connection.number)
    assert connection.inside is not None
    for name, value in (
        ("window_bytes", connection.inside.window_bytes),
        ("mapped_bytes", connection.inside.mapped_bytes),
        ("first_bytes", connection.inside.first_bytes),
        ("buffers", connection.inside.buffers),
        ("credits_max", connection.inside.credits_max),
    ):
        assert scrape.value(f"livedma_connection_{name}", connection=number) == value
    limits = {
        dict(labels)["limit"]: value
        for (name, labels), value in scrape.samples.items()
        if name == "livedma_connection_limit"
    }
    assert sum(limits.values()) == 1 and limits["memory"] == 1
    assert scrape.value("livedma_connections_limited", limit="memory") == 1
    assert scrape.value("livedma_connection_degraded", connection=number) == 1
    assert scrape.value("livedma_connection_memory_wait_seconds_count", connection=number) > 0
    assert scrape.value("livedma_connection_leased_bytes", connection=number) > 0
    assert scrape.value("livedma_sessions") == sessions == 32
    sources = scrape.by("livedma_monitor_source", "source")
    assert sources == {"bpf": 0, "server": 1, "bpf+server": 0, "nfsd": 0}
    assert scrape.value("livedma_policy_info", policy="static", dry_run="false") == 1
    kinds = scrape.by("livedma_decisions_total", "kind")
    assert kinds["degraded"] >= 1 and kinds["done"] == kinds["refuse"] == 0


def test_the_room_for_sessions_is_a_gauge(tmp_path: Path) -> None:
    with metered(tmp_path, store_delay_s=0.02) as server, DrivenLoad(4) as load:
        load.sessions(4)
        scrape = wait_for(lambda: _with_room(server))
    rooms = {
        (dict(labels)["when"], dict(labels)["bound"]): value
        for (name, labels), value in scrape.samples.items()
        if name == "livedma_connection_room_sessions"
    }
    assert 0 < rooms["now", "least"] <= rooms["now", "most"] <= rooms["end", "most"]
    assert rooms["now", "least"] <= rooms["end", "least"]


def _with_room(server: Metered) -> Scrape | None:
    scrape = Scrape(server.metrics)
    names = {name for name, _ in scrape.samples}
    return scrape if "livedma_connection_room_sessions" in names else None


def _degraded(server: Metered) -> Scrape | None:
    scrape = Scrape(server.metrics)
    signs = (
        scrape.value("livedma_connections_limited", limit="memory"),
        scrape.value("livedma_connections_degraded"),
        scrape.value("livedma_decisions_total", kind="degraded"),
    )
    return scrape if all(signs) else None


def test_many_may_ask_at_once_while_crowds_come_and_go(tmp_path: Path) -> None:
    """Each of them sees what only grows; in the end all of it is there."""
    wrong: list[str] = []
    over = threading.Event()
    results: list[Result] = []
    with metered(tmp_path, sessions=3) as server:

        def ask() -> None:
            before: dict[str, float] = {}
            while not over.is_set():
                for family in Scrape(server.metrics).families.values():
                    if family.type not in ("counter", "histogram"):
                        continue
                    for one in family.samples:
                        key = f"{one.name} {sorted(one.labels.items())}"
                        if one.value < before.get(key, 0):
                            wrong.append(f"{key}: {before[key]} -> {one.value}")
                        before[key] = one.value

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                results.append(ran(CROWD))
        finally:
            over.set()
            for thread in threads:
                thread.join()
        wait_for(lambda: not server.service.rdma[0].connections)
        last = Scrape(server.metrics)
    assert not wrong
    read = sum(one.counters.read_bytes for one in results)
    assert last.value("livedma_read_bytes_total") == read > 0


def test_who_asks_at_once_again_gets_the_same(tmp_path: Path) -> None:
    with metered(tmp_path) as server:
        lasting = Metrics(server.service, server.it.controller, fresh_s=1000)
        with lasting:
            answers = [lasting.render(one) for one in ("", OPEN, "", OPEN)]
    assert answers[:2] == answers[2:] and answers[0] != answers[1]
