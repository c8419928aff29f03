"""The README, run: every command in it as it stands there, and its Python."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from livedma.cli import demo_page
from livedma.lab.hosts import two_hosts
from livedma.lab.ramp import Ramp

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for kind, block in BLOCKS
    if not kind
    for line in block.splitlines()
    if line.startswith(("livedma ", "make "))
]
DEVICE = [c for c in COMMANDS if re.match(r"livedma (doctor|mem|rping|perf)", c)]
EXPERIMENTS = [command for command in COMMANDS if command.startswith("livedma experiment")]
LIVE = [command for command in COMMANDS if re.match(r"livedma (capture|guard)", command)]
STORAGE = [command for command in COMMANDS if re.match(r"livedma (serve|load)", command)]
OFFLINE = [command for command in COMMANDS if command.startswith("livedma decode")]


@pytest.fixture
def beside_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "data" / "rc_rnr.pcap", tmp_path / "trace.pcap")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_something_to_run() -> None:
    assert len(OFFLINE) >= 5
    assert len(LIVE) >= 5
    assert len(DEVICE) == 6
    assert len(EXPERIMENTS) == 2
    assert len(STORAGE) == 2
    others = set(COMMANDS).difference(OFFLINE, LIVE, DEVICE, EXPERIMENTS, STORAGE)
    assert others == {"make demo", "make test"}


@pytest.mark.parametrize("command", OFFLINE)
def test_decoding(command: str, beside_a_trace: Path) -> None:
    subprocess.run(shlex.split(command), check=True, capture_output=True)


def test_what_is_shown_is_what_is_printed(beside_a_trace: Path) -> None:
    shown = [block for kind, block in BLOCKS if "10.77.0." in block]
    assert len(shown) == 2
    for options, block in zip(([], ["--summary"]), shown, strict=True):
        argv = ["livedma", "decode", "trace.pcap", *options]
        printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        for line in block.splitlines():
            assert line in printed.splitlines()


def test_the_demo_that_is_shown_has_the_form_of_today() -> None:
    (shown,) = (block for kind, block in BLOCKS if "what happened under extend" in block)
    lines = shown.splitlines()
    stage: Any = SimpleNamespace(
        is_isolated=True, server_address="10.80.0.1", client_address="10.80.0.2"
    )
    heading = list(demo_page.heading(stage, Ramp()))
    assert lines[: len(heading)] == heading
    assert demo_page.act("extend", "bpf+server", again=False) in lines
    assert demo_page.act("static", "bpf+server", again=True) in lines
    assert max(map(len, lines)) <= 80


def test_python(beside_a_trace: Path) -> None:
    (program,) = (block for kind, block in BLOCKS if kind == "python" and "wire" in block)
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_memory_grows_and_shrinks() -> None:
    (program,) = (block for kind, block in BLOCKS if kind == "python" and "window" in block)
    argv = [sys.executable, "-c", program]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert re.fullmatch(r"a buffer at 0x1[0-9a-f]{12} of 16; 80 MiB\n", printed)


@contextmanager
def running(*argv: str) -> Iterator[None]:
    """A server, which ends by itself or when it is no longer needed."""
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def ask_until_served(*argv: str) -> str:
    """A client's answer, as soon as the server is there."""
    for _ in range(100):
        asked = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        if not asked.returncode:
            return asked.stdout
        time.sleep(0.1)
    raise AssertionError(asked.stderr)


def test_ten_lines_read_remote_memory() -> None:
    server, client = (block for kind, block in BLOCKS if kind == "python" and "cm." in block)
    assert all(len(block.splitlines()) <= 10 for block in (server, client))
    with running(sys.executable, "-c", server):
        assert ask_until_served(sys.executable, "-c", client) == "hello from afar\n"


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["rping", "perf"])
def test_tools_of_the_device(tool: str) -> None:
    server, client = (shlex.split(c) for c in DEVICE if f" {tool} " in c)
    with running(*server):
        assert ask_until_served(*client)


@pytest.mark.parametrize("command", ["doctor", "mem"])
def test_what_looks_at_the_host(command: str) -> None:
    assert f"livedma {command}" in DEVICE
    subprocess.run(["livedma", command], check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", EXPERIMENTS)
def test_experiments(command: str, tmp_path: Path) -> None:
    subprocess.run(shlex.split(command), check=True, capture_output=True, cwd=tmp_path)
    if "--out" in command:
        assert (tmp_path / "results" / "pool.html").exists()


@pytest.mark.slow
def test_storage(tmp_path: Path) -> None:
    serve, load = STORAGE
    with two_hosts() as (here, there):
        argv = here.command(*shlex.split(serve.replace("/srv/data", str(tmp_path / "export"))))
        (tmp_path / "export").mkdir()
        (tmp_path / "export").chmod(0o777)  # root is squashed
        argv += ["--state", str(tmp_path / "state"), "--control", str(tmp_path / "control")]
        with running(*argv):
            command = shlex.split(load.replace("HOST", here.ipv4))
            assert "errors      none" in ask_until_served(
                *there.command(*command, "--seconds", "1")
            )


@pytest.mark.slow
def test_live(bpf: None, beside_a_trace: Path) -> None:
    with two_hosts() as (_, host):
        for command in LIVE:
            argv = host.command(*shlex.split(command))
            with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as running:
                if " capture " in command:
                    assert running.stderr is not None
                    for line in running.stderr:
                        if "Ctrl-C ends it" in line:
                            break
                    running.send_signal(signal.SIGINT)
                _, said = running.communicate(timeout=30)
            assert running.returncode == 0, (command, said)


def test_make_targets_are_listed() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, check=True, capture_output=True, text=True)
    for target in ("help", "demo", "test", "quick", "bench", "check"):
        assert f"make {target} " in listed.stdout
