# SPDX-License-Identifier: BSD-2-Clause
"""A server without options, as a plain user starts it, and commands that find it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from livedma.cli.serve import places
from livedma.errors import LivedmaError
from livedma.nfs.server.private_directory import make_private
from needs import needs
from unprivileged import as_nobody

LIMIT_S = 60.0
NOBODY = 65534
OWN, OWN_V6 = "10.87.0.1", "fd87::1"
LIVEDMA = [sys.executable, "-m", "livedma.cli"]


def test_an_environment_of_another_user_is_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "RUN", tmp_path / "run")
    monkeypatch.setattr(places, "SHARED", tmp_path / "tmp")
    monkeypatch.setattr(places, "SERVICES", tmp_path / "run" / "livedma")
    last = places.SERVICES if os.geteuid() == 0 else places.SHARED / f"livedma-{os.geteuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    assert places.control_directories() == [last]
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/self")  # closed, but no place for files
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(own))
    assert places.control_directories() == [own / "livedma", last]
    own.chmod(0o777)  # any user could put something else there
    assert places.control_directories() == [last]
    system = places.RUN / "user" / str(os.geteuid())
    system.mkdir(mode=0o700, parents=True)
    assert places.control_directories() == [system / "livedma", last]


def test_a_directory_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "only root makes directories of others")
    directory = tmp_path / "livedma-0"
    directory.mkdir()
    os.chown(directory, NOBODY, NOBODY)
    with pytest.raises(LivedmaError, match=f"it belongs to user {NOBODY}"):
        make_private(directory)
    directory.rmdir()
    (tmp_path / "elsewhere").mkdir()
    directory.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LivedmaError, match="it is a symbolic link"):
        make_private(directory)
    directory.unlink()
    directory.touch()
    with pytest.raises(LivedmaError, match="it is no directory"):
        make_private(directory)
    directory.unlink()
    directory.mkdir()
    directory.chmod(0o777)
    make_private(directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    with pytest.raises(LivedmaError, match="cannot be made: No such file"):
        make_private(tmp_path / "missing" / "livedma-0")


def test_what_killed_servers_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    directory = tmp_path / "livedma"
    assert places.control_directory() == directory
    places.make_control_directory()
    gone, elsewhere = 1 << 30, (1 << 30) + 1  # no process has such a number
    for name in (f"serve-{gone}", f"serve-{os.getpid()}", "mine"):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(directory / name))
    for name in (f"serve-{gone}.token", "serve-notes", f"serve-{elsewhere}.token"):
        (directory / name).touch()
    with socket.socket(socket.AF_UNIX) as other:  # a server in another PID namespace
        other.bind(str(directory / f"serve-{elsewhere}"))
        other.listen()
        places.make_control_directory()
    kept = {f"serve-{os.getpid()}", "mine", "serve-notes"}
    kept |= {f"serve-{elsewhere}", f"serve-{elsewhere}.token"}
    assert {one.name for one in directory.iterdir()} == kept


def _kept(cover: Path) -> Iterator[tuple[Path, Path]]:
    """What a clone in /tmp needs of itself below what is put over /tmp, as mounts."""
    for prefix in {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}:
        if prefix.is_relative_to("/tmp"):
            place = cover / prefix.relative_to("/tmp")
            place.mkdir(parents=True)
            yield prefix, place


class Alone:
    """Commands of nobody, in mount and network namespaces of their own: /tmp, /var/tmp and /run
    are directories of the test, in which no other server is found.
    """

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        for name in ("tmp", "run"):
            (directory / name).mkdir()
        (directory / "tmp").chmod(0o1777)
        (directory / "tmp" / "export").mkdir()
        os.chown(directory / "tmp" / "export", NOBODY, NOBODY)
        self._environment = {"PATH": os.environ["PATH"], **environment}
        self.files = directory / "tmp"
        covers = (("run", "/run"), ("tmp", "/var/tmp"), ("tmp", "/tmp"))
        mounts = [*_kept(directory / "tmp"), *((directory / one, at) for one, at in covers)]
        commands = " && ".join(f"mount --rbind {source} {target}" for source, target in mounts)
        links = [
            "ip link set lo up",
            "ip link add one type veth peer name other",
            f"ip address add {OWN}/24 dev one",
            f"ip address add {OWN_V6}/64 dev one nodad",
            "ip link set one up",
            "ip link set other up",
        ]
        begin = " && ".join([*links, commands, "echo ready"])
        self._holder = subprocess.Popen(
            ["unshare", "-n", "-m", "sh", "-c", f"{begin} && exec sleep infinity"],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n"

    def command(self, *words: str, is_root: bool = False) -> list[str]:
        enter = ["nsenter", "-n", "-m", "-t", str(self._holder.pid), "--wd=/"]
        return [*enter, *([] if is_root else as_nobody()), *LIVEDMA, *words]

    def run(self, *words: str, is_root: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, is_root=is_root),
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    @contextmanager
    def serving(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        log = self.files / "log"
        with log.open("w") as file:
            server = subprocess.Popen(
                self.command("serve", "/tmp/export", *words),
                env=self._environment,
                stderr=file,
                text=True,
            )
        try:
            end_s = time.monotonic() + LIMIT_S
            while "source " not in log.read_text():
                assert server.poll() is None and time.monotonic() < end_s, log.read_text()
                time.sleep(0.02)
            yield server
        finally:
            server.kill()
            server.wait()

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        assert self._holder.stdout is not None
        self._holder.stdout.close()


@pytest.fixture
def alone(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Alone]:
    needs(os.geteuid() == 0, "only root can become somebody else")
    made = Alone(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "alone", [{}, {"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/run/user/0"}], indirect=True
)
def test_a_plain_user_serves_without_options(alone: Alone) -> None:
    with alone.serving("--web=127.0.0.1:0") as server:
        said = (alone.files / "log").read_text()
        assert "RDMA port 20049, 127.0.0.1" in said and "TCP port 2049" in said
        assert f"control socket /tmp/livedma-{NOBODY}/serve-" in said
        assert (alone.files / f"livedma-{NOBODY}").stat().st_mode & 0o777 == 0o700
        for proto in ("rdma", "tcp"):
            load = ("load", "127.0.0.1", "--proto", proto, "--sessions", "1", "--seconds", "0.2")
            done = alone.run(*load, "--file-size", "1MiB")
            assert done.returncode == 0, done.stderr
        assert alone.run("why").returncode == 0
        assert alone.run("reload").stderr.endswith("it runs without --config\n")
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 0, (alone.files / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("alone", [{}], indirect=True)
def test_what_a_plain_user_may_not_is_said(alone: Alone) -> None:
    cases = [
        (["/tmp/export", "--tcp", "111"], "TCP port 111 of all addresses: this user may not"),
        (["/tmp/export", "--listen", "10.9.9.9"], "this host does not have the address"),
        (["/tmp/export", "--listen", "300.1.1.1"], "of 300.1.1.1: Name or service not known\n"),
        (["/tmp/export", "--control", "/nonexistent/c"], "there is no directory /nonexistent"),
        (["/tmp/export", "--state", "/root/x"], "the state directory /root/x cannot be used"),
    ]
    if not any("dac_read_search" in word for word in as_nobody()):
        (alone.files / "secret").mkdir(mode=0o700)
        cases.append((["/tmp/secret"], "/tmp/secret cannot be exported: Permission denied"))
    for words, said in cases:
        done = alone.run("serve", *words)
        assert done.returncode == 1 and done.stderr.startswith("livedma: "), done.stderr
        assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("alone", [{}], indirect=True)
def test_a_place_that_another_user_has_is_named(alone: Alone) -> None:
    (alone.files / f"livedma-{NOBODY}").mkdir()
    done = alone.run("serve", "/tmp/export")
    assert done.returncode == 1
    assert f"/tmp/livedma-{NOBODY} cannot be used: it belongs to user 0" in done.stderr
    assert "--control PATH" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("alone", [{}], indirect=True)
def test_a_client_beside_the_server_needs_no_address_of_its_own(alone: Alone) -> None:
    load = ("--sessions", "1", "--seconds", "0.2", "--file-size", "1MiB")
    with alone.serving():
        for is_root in (False, True):
            done = alone.run("load", OWN, *load, is_root=is_root)
            assert done.returncode == 0, done.stderr
        refused = alone.run("load", OWN_V6, *load)
        assert refused.returncode == 1
        said = " ".join(refused.stderr.split())
        assert f"UDP port 4791 at {OWN_V6} is in use" in said
        assert "or the server's IPv4 address, or load's --proto tcp" in said
        over_tcp = alone.run("load", OWN_V6, "--proto", "tcp", *load)
        assert over_tcp.returncode == 0, over_tcp.stderr
