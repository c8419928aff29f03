# SPDX-License-Identifier: BSD-2-Clause
"""Load that comes and goes on a real server, under each policy that does something."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.control.live import LIMIT_S, MIB, DrivenLoad, mapped, serve, told, wait_for

from scale import at_scale

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_memory_follows_the_load_both_ways(tmp_path: Path) -> None:
    with serve(tmp_path) as served, DrivenLoad(40) as load:
        load.sessions(40)
        wait_for(lambda: mapped(served.control) > 7 * MIB)
        load.sessions(2)
        # Each step down may wait for 20 s: CI has time for some of them.
        wait_for(lambda: mapped(served.control) <= at_scale(4, 7) * MIB, 3 * LIMIT_S)
        load.sessions(40)
        wait_for(lambda: mapped(served.control) > 7 * MIB)
        assert told(served.control, "shrink")
        assert not told(served.control, "undo")
    assert load.result["errors"] == load.result["wrong_data"] == 0


def test_spread_takes_new_sessions_elsewhere(tmp_path: Path) -> None:
    with serve(tmp_path, "--policy", "spread") as served, DrivenLoad(40) as load:
        load.sessions(20)
        wait_for(lambda: told(served.control, "check"))
        load.sessions(30)

        def are_busy() -> bool:
            found = served.control.ask("snapshot", sessions=False)["connections"]
            return len(found) > 1 and all(one["operations"] for one in found)

        wait_for(are_busy)
        assert "new sessions go to connection" in told(served.control, "check")[0]["text"]
    assert load.result["errors"] == load.result["wrong_data"] == 0


def test_migrate_moves_all_to_a_larger_connection(tmp_path: Path) -> None:
    with serve(tmp_path, "--policy", "migrate") as served, DrivenLoad(30) as load:
        load.sessions(30)
        moved, judged = wait_for(lambda: _two(told(served.control, "check")))
        assert "sessions moved to connection" in moved["text"]
        assert judged["connection"] == moved["data"]["successor"]
        (connection,) = served.control.ask("snapshot", sessions=False)["connections"]
        assert connection["number"] == judged["connection"]
        assert connection["inside"]["mapped_bytes"] > 7 * MIB
    assert load.result["errors"] == load.result["wrong_data"] == 0


def _two(events: list[dict[str, object]]) -> list[dict[str, object]]:
    return events[:2] if len(events) >= 2 else []
