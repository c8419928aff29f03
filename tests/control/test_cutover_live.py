# SPDX-License-Identifier: BSD-2-Clause
"""`livedma serve` moves a client that cannot be asked: by the policy, and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.control.live import HEAVY, MIB, loaded, mapped, serve, told, wait_for

from livedma.cli import main
from livedma.nfs.control import Control, ControlError

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ALONE = replace(HEAVY, follow=False)  # 128 calls want 32 to 56 buffers
FULL = ("--window", "4MiB", "--mapped", "1", "--policy")


def cut_over(control: Control) -> list[dict[str, Any]]:
    return [one for one in told(control, "done") if one["data"].get("successor")]


def test_the_policy_extends_first_and_cuts_where_the_window_is_full(tmp_path: Path) -> None:
    with serve(tmp_path, "--window", "8MiB", "--mapped", "1/2", "--policy", "migrate") as served:
        control = served.control
        with loaded(replace(ALONE, depth=8)) as results:
            (event, *_) = wait_for(lambda: cut_over(control))
            assert event["line"].startswith("done      connection 1 -> 2: 32 sessions in ")
            first, *_, last = (
                one["text"] for one in told(control, "plan") if one["connection"] == 1
            )
            assert first.startswith("migrate: map ")
            assert last.startswith("migrate: move to a connection with ")
            assert "its client cannot be asked, and is cut off for about 1 s" in last
            wait_for(lambda: [one for one in told(control, "check") if one["connection"] == 2])
            assert mapped(control) > 9 * MIB
        (result,) = results
        assert len(result.sessions) == 32 and result.reconnects


def test_a_person_moves_one_and_hears_what_became_of_it(tmp_path: Path) -> None:
    with serve(tmp_path, *FULL, "static") as served:
        control = served.control
        with loaded(ALONE) as results:
            wait_for(lambda: len(control.ask("sessions")) == 32)
            done = control.ask("migrate", connection=1, bytes=12 * MIB, credits=150)["done"]
            assert "its client cannot be asked" in done
            (event,) = wait_for(lambda: cut_over(control))
            assert (event["connection"], event["data"]["successor"]) == (1, 2)
            (hand,) = told(control, "hand")
            assert hand["text"] == done
            (connection,) = control.ask("connections")
            assert connection["credits"] == 150 and connection["mapped"] > 11 * MIB
            # The server's last snapshot may still hold it.
            with pytest.raises(ControlError, match=r"connection 1 (over RDMA|has ended)"):
                control.ask("migrate", connection=1, bytes=12 * MIB, credits=150)
        assert results[0].reconnects


@pytest.mark.parametrize(("more", "granted"), [((), None), (("--credits", "96"), 96)])
def test_the_command_moves_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], granted: int | None
) -> None:
    with serve(tmp_path, *FULL, "static") as served:
        control = served.control
        with loaded(ALONE) as results:
            wait_for(lambda: len(control.ask("sessions")) == 32)
            here = ("--control", str(tmp_path / "control"))
            assert main(["migrate", "1", "12MiB", *more, *here]) == 0
            assert capsys.readouterr().out.startswith("connection 1: its client cannot be asked")
            wait_for(lambda: cut_over(control))
            (connection,) = control.ask("connections")
            assert connection["credits"] == (granted or connection["credits"]) > 64
            assert connection["mapped"] > 11 * MIB
        assert results[0].reconnects
