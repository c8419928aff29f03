# SPDX-License-Identifier: BSD-2-Clause
"""livedma load that is interrupted: it shows what was measured, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.cli import main
from livedma.nfs.client import Client
from livedma.nfs.client.errors import StateLost
from livedma.nfs.client.file import File
from livedma.nfs.client.files import Rights
from livedma.nfs.load import Plan, Runner
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.opening import enterable
from livedma.rpc.client import ConnectionLost
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, PORT = f"{_NET}.70", 20490
LIMIT_S = 60.0


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Path]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    directory = tmp_path / "export"
    directory.mkdir()
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=PORT,
        rdma_port=None,
        state=tmp_path / "state",
        config=Config(squash="none"),
    )
    with NfsService(directory, service_options):
        yield directory


def start(*options: str) -> subprocess.Popen[str]:
    where = ["load", SERVER, "--proto", "tcp", "--port", str(PORT), "--seconds", "600"]
    return subprocess.Popen(
        [sys.executable, "-m", "livedma.cli", *where, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_interval(load: subprocess.Popen[str], skipped: int) -> None:
    assert load.stdout is not None
    for _ in range(skipped + 1):
        assert load.stdout.readline()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_measured_is_shown(export: Path, number: signal.Signals, status: int) -> None:
    load = start("--sessions", "3", "--size", "4KiB")
    first_interval(load, skipped=2)  # the heading
    load.send_signal(number)
    said, wrong = load.communicate(timeout=LIMIT_S)
    assert load.returncode == status
    assert wrong == ""
    lines = said.splitlines()
    assert any(line.startswith("operations  ") for line in lines)
    assert any(line.startswith("latency     p50") for line in lines)
    assert f"interrupted by {number.name}" in said
    assert not list(export.iterdir())


@pytest.mark.parametrize("options", [(), ("--ramp", "50")])
def test_in_json_too(export: Path, options: tuple[str, ...]) -> None:
    load = start("--json", "--sessions", "3", "--size", "4KiB", *options)
    first_interval(load, skipped=0)
    load.send_signal(signal.SIGINT)
    said, _ = load.communicate(timeout=LIMIT_S)
    assert load.returncode == 130
    total = json.loads(said.splitlines()[-1])
    assert total["ended"] == "interrupted by SIGINT"
    assert total["operations"] > 0
    assert not list(export.iterdir())


def test_before_anything_is_measured(export: Path) -> None:
    load = start("--file-size", "64GiB", "--size", "4KiB")
    end_s = time.monotonic() + LIMIT_S
    while not list(export.iterdir()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    load.send_signal(signal.SIGTERM)
    _, wrong = load.communicate(timeout=LIMIT_S)
    assert load.returncode == 143
    assert wrong == "livedma: interrupted by SIGTERM before anything was measured\n"
    assert not list(export.iterdir())


def test_a_file_of_which_the_client_does_not_know_yet(
    export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has made the file, and its answer comes after the interruption."""
    made, is_interrupted = asyncio.Event(), asyncio.Event()
    open_file = Client.open

    @enterable
    async def answered_late(client: Client, path: str, access: Rights, *, create: bool) -> File:
        file = await open_file(client, path, access, create=create)
        made.set()
        await is_interrupted.wait()
        return file

    async def run() -> None:
        running = asyncio.create_task(Runner(Plan(proto="tcp"), SERVER, PORT).run())
        await asyncio.wait_for(made.wait(), LIMIT_S)
        assert list(export.iterdir())
        running.cancel()
        asyncio.get_running_loop().call_soon(is_interrupted.set)
        with pytest.raises(asyncio.CancelledError):
            await running

    monkeypatch.setattr(Client, "open", answered_late)
    asyncio.run(run())
    assert not list(export.iterdir())


def test_a_file_that_cannot_be_closed_is_removed(
    export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one whose open was lost when the server restarted."""

    async def close(file: File) -> None:
        raise StateLost(f"{file.path}: the server has forgotten it")

    monkeypatch.setattr(File, "close", close)
    plan = Plan(proto="tcp", sessions=2, seconds=0.1)
    asyncio.run(Runner(plan, SERVER, PORT).run())
    assert not list(export.iterdir())


def test_files_that_cannot_be_removed_are_named(
    export: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def remove(client: Client, path: str) -> None:
        raise ConnectionLost("the server did not answer")

    monkeypatch.setattr(Client, "remove", remove)
    where = ["load", SERVER, "--proto", "tcp", "--port", str(PORT), "--sessions", "2"]
    assert main([*where, "--size", "4KiB", "--seconds", "0.2"]) == 0
    (said,) = capsys.readouterr().err.splitlines()
    found = re.fullmatch(
        r"livedma: 2 files could not be removed and may still be at the server: "
        r"remove /(livedma-load-\S+-\*) by hand",
        said,
    )
    assert found, said
    assert len(list(export.glob(found[1]))) == 2


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A server that says nothing any more is not waited for."""
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    (tmp_path / "export").mkdir()
    where = ["--listen", SERVER, "--tcp", str(PORT), "--state", str(tmp_path / "state")]
    options = ["--squash", "none", "--control", str(tmp_path / "control"), "--monitor", "server"]
    command = [sys.executable, "-m", "livedma.cli", "serve", str(tmp_path / "export")]
    with subprocess.Popen(
        [*command, *where, *options], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            assert any("control socket" in line for line in server.stderr)
            load = start("--size", "4KiB")
            first_interval(load, skipped=2)
            server.send_signal(signal.SIGSTOP)
            load.send_signal(signal.SIGINT)
            end_s = time.monotonic() + LIMIT_S
            while load.poll() is None:  # the first one may not have come yet
                assert time.monotonic() < end_s
                time.sleep(0.1)
                load.send_signal(signal.SIGINT)
            load.communicate(timeout=LIMIT_S)
            assert load.returncode == -signal.SIGINT
        finally:
            server.kill()
