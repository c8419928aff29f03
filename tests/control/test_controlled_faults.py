# SPDX-License-Identifier: BSD-2-Clause
"""What goes wrong around a real server: named in its log, served on, recovered."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.control.live import HEAVY, Served, loaded, serve, told, wait_for

from bpf_links import links_of
from livedma.nfs.control import Control
from needs import needs

pytestmark = [pytest.mark.slow, pytest.mark.alone]

_TAKEN = 8  # the first descriptors of a server, which it keeps


def sources(served: Served) -> list[str]:
    """What snapshots came from, one after the other."""
    events = told(served.control, "source")
    return [one["data"]["source"] for one in events if "source" in one["data"]]


def test_bpf_detached_by_somebody_is_noticed_and_attached_again(tmp_path: Path, bpf: None) -> None:
    needs(shutil.which("bpftool"), "bpftool detaches BPF links")
    with serve(tmp_path) as served, loaded(HEAVY):
        wait_for(lambda: sources(served) == ["bpf+server"])
        for link in links_of(served.pid):
            subprocess.run(["bpftool", "link", "detach", "id", str(link)], check=True)
        wait_for(lambda: sources(served) == ["bpf+server", "server", "bpf+server"])
        (_, lost, _) = told(served.control, "source")
        assert lost["text"].endswith("another program has detached its BPF programs")


def test_without_descriptors_it_serves_on_and_recovers(tmp_path: Path) -> None:
    with serve(tmp_path, "--monitor", "server") as served, loaded(HEAVY):
        wait_for(lambda: told(served.control, "degraded"))
        before = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (_TAKEN, before[1]))
        wait_for(
            lambda: any(
                "Too many open files" in one["text"] for one in told(served.control, "failed")
            )
        )
        late = Control(tmp_path / "control")  # nobody can accept it now
        resource.prlimit(served.pid, resource.RLIMIT_NOFILE, before)
        with late:
            assert late.ask("policy")["policy"] == "extend"
        wait_for(
            lambda: any("works again" in one["text"] for one in told(served.control, "recovered"))
        )


def test_a_server_that_was_stopped_for_a_while_goes_on(tmp_path: Path) -> None:
    with serve(tmp_path, "--monitor", "server") as served:
        served.control.ask("snapshot")  # it waits for the first one
        os.kill(served.pid, signal.SIGSTOP)
        time.sleep(2.5)
        os.kill(served.pid, signal.SIGCONT)
        wait_for(
            lambda: any("is left out" in one["text"] for one in told(served.control, "source"))
        )
        wait_for(lambda: served.control.ask("snapshot")["interval_s"] < 2)
