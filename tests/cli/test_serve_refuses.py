# SPDX-License-Identifier: BSD-2-Clause
"""A server that refuses: what its log says, and what a client is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import LIMIT_S, live_server, wait_for

from livedma.nfs.control import ControlError

pytestmark = pytest.mark.slow
HERE = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.21"


def load(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "livedma.cli", "load", *words, "--seconds", "1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)


def test_a_client_that_is_not_allowed_is_told_so(tmp_path: Path) -> None:
    words = ("--listen", HERE, "--allow", "10.0.0.0/8")
    with live_server(tmp_path, *words) as server:
        done = load(HERE)
        assert done.returncode == 1
        assert done.stderr.startswith("livedma: the server refused the connection: 127.")
        assert done.stderr.endswith(" is not in its --allow list\n")
        done = load(HERE, "--proto", "tcp", "--port", str(server.port))
        assert done.returncode == 1
        assert done.stderr.startswith("livedma: the server refused the connection: it does not ")
        for proto in ("rdma", "tcp"):
            said = f" over {proto}: "
            wait_for(lambda said=said: said in server.said, lambda: server.said)
        refused = [line for line in server.said.splitlines() if " refused   " in line]
        assert len(refused) >= 2 and all("is not in its --allow list" in one for one in refused)


def test_a_reload_with_values_that_cannot_work_changes_nothing(tmp_path: Path) -> None:
    with live_server(tmp_path, rdma=20049, listen=[HERE], window="16MiB") as server:
        for options, said in (
            ({"window": "1MiB"}, "--mapped 1/4 of --window 1MiB is 256KiB, which is too small"),
            ({"credits": 999999999}, "credits: '999999999' is out of range: 1 to 1024"),
            ({"budget": "1MiB"}, "--budget 1MiB is too small for one connection"),
        ):
            server.write(rdma=20049, listen=[HERE], **{"window": "16MiB", **options})
            with pytest.raises(ControlError, match="reload: ") as error:
                server.ask("reload")
            assert said in str(error.value)
        server.write(rdma=20049, listen=[HERE], window="32MiB")
        assert server.ask("reload")["changed"] == {"window": ["16 MiB", "32 MiB"]}
