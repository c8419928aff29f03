# SPDX-License-Identifier: BSD-2-Clause
"""livedma lab as people use it, and what is left when a lab's process is killed: nothing."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from livedma.errors import LabError
from livedma.lab import image
from livedma.lab.guest import LABS, Lab, remove, running
from wiretap import livedma

pytestmark = pytest.mark.slow


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}"


def lab(name: str, *args: str, **options: object) -> subprocess.CompletedProcess[str]:
    argv = livedma("lab", "--name", name, *args)
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, **options)  # type: ignore[call-overload,no-any-return]


def wait_gone(name: str) -> None:
    end_s = time.monotonic() + 60
    while (LABS / name).exists() or Path(f"/run/netns/ldma-lab-{name}").exists():
        assert time.monotonic() < end_s, "the lab is still there"
        time.sleep(0.1)
    found = subprocess.run(["pgrep", "-f", f"{LABS / name}/"], stdout=subprocess.PIPE)
    assert not found.stdout


def test_up_sh_down(guests: Lab, name: str) -> None:
    try:
        up = lab(name, "up")
        assert (up.returncode, up.stdout.count("guest ")) == (0, 2), up.stderr
        assert "both guests are up" in up.stderr
        again = lab(name, "up")
        assert again.returncode == 1 and "is up: livedma lab down" in again.stderr
        status = json.loads(lab(name, "--json").stdout)
        assert [guest["ipv4"] for guest in status["guests"]] == ["10.77.0.1", "10.77.0.2"]
        done = lab(name, "sh", "a", "sh", "-c", 'echo "x  y"; exit 5')
        assert (done.returncode, done.stdout) == (5, "x  y\n")
        done = lab(name, "sh", "b", input="hostname; rdma link")
        assert done.returncode == 0 and done.stdout.startswith("b\nlink rxe0/1 state ACTIVE")
        assert "10.77.0.254" in lab(name, "host", "ip", "-br", "addr").stdout
        _use_a_shell(name)
    finally:
        down = lab(name, "down")
    assert (down.returncode, down.stdout) == (0, "the guests are down\n")
    wait_gone(name)
    assert lab(name, "down").stdout == "no guests were up\n"
    assert "no guests are up" in lab(name).stdout
    gone = lab(name, "sh", "a", "true")
    assert gone.returncode == 1 and "guest a is not running: livedma lab up" in gone.stderr


def _use_a_shell(name: str) -> None:
    """Types into an interactive shell: it has a terminal, and its status comes back."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, livedma("lab", "--name", name, "sh", "a"))
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        end_s = time.monotonic() + 60
        while text not in shown:
            assert time.monotonic() < end_s, shown
            if select.select([terminal], [], [], 1)[0]:
                shown += os.read(terminal, 4096)
        shown = shown.partition(text)[2]

    try:
        wait_for(b"# ")
        os.write(terminal, b"tty; echo $((6 * 7)).\n")
        wait_for(b"/dev/pts/")
        wait_for(b"42.")
        wait_for(b"# ")
        os.write(terminal, b"exit 9\n")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    finally:
        os.close(terminal)


@pytest.mark.parametrize("keeper", ["keeper lives", "keeper is killed, too"])
def test_a_lab_goes_away_with_its_process(guests: Lab, name: str, keeper: str) -> None:
    program = "from livedma.lab.guest import Lab; import time\n"
    program += f"Lab({name!r}).start(); print('up', flush=True); time.sleep(600)"
    try:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            assert len(running(name)) == 2
            if keeper != "keeper lives":
                subprocess.run(["pkill", "-KILL", "-f", f"lab.keeper {LABS / name}$"], check=True)
            process.send_signal(signal.SIGKILL)
        if keeper != "keeper lives":
            assert len(running(name)) == 2
            with Lab(name):  # the next lab cleans up
                assert len(running(name)) == 2
        wait_gone(name)
    finally:
        remove(LABS / name)


def test_a_lab_that_fails_to_start_leaves_nothing(
    guests: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from livedma.lab.guest import Guest

    def fail(self: Guest, timeout_s: float = 0) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Guest, "wait_ready", fail)
    with pytest.raises(KeyboardInterrupt), Lab(name):
        pass
    wait_gone(name)


def test_a_broken_snapshot_is_replaced(
    guests: Lab, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = image.cached()
    assert found is not None
    snapshot = found.directory / "snapshots" / name
    snapshot.mkdir(parents=True)
    for guest in guests.guests:
        (snapshot / f"{guest.name}.zst").write_bytes(b"nonsense")
    monkeypatch.setattr(Lab, "_snapshot_key", lambda self, image: name)
    said: list[str] = []
    try:
        with Lab(name, say=said.append) as fresh:
            assert fresh.a.run("hostname", check=True).stdout == "a\n"
        assert any("the snapshot is of no use" in sentence for sentence in said)
        with Lab(name, say=said.append):
            assert said[-1] == "starting the guests from their snapshot"
    finally:
        shutil.rmtree(snapshot, ignore_errors=True)
    wait_gone(name)


def test_a_kernel_that_dies_is_quoted(guests: Lab, name: str) -> None:
    with Lab(name) as fresh:
        for command in ("echo c > /proc/sysrq-trigger", "true"):
            with pytest.raises(LabError, match=r"said: Kernel panic .* sysrq triggered crash"):
                fresh.a.run(command)
        assert fresh.b.run("hostname", check=True).stdout == "b\n"
    wait_gone(name)
