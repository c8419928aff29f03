"""The README, run: every command in it as it stands there, and its Python."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from livedma.lab.hosts import two_hosts

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
LIVE = [command for command in COMMANDS if re.match(r"livedma (capture|guard)", command)]
OFFLINE = [command for command in COMMANDS if command.startswith("livedma decode")]


@pytest.fixture
def beside_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "data" / "rc_rnr.pcap", tmp_path / "trace.pcap")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_something_to_run() -> None:
    assert len(OFFLINE) >= 5
    assert len(LIVE) >= 5
    assert set(COMMANDS) - set(OFFLINE) - set(LIVE) == {"make demo", "make test"}


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


def test_python(beside_a_trace: Path) -> None:
    (program,) = (block for kind, block in BLOCKS if kind == "python")
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


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
