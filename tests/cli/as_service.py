# SPDX-License-Identifier: BSD-2-Clause
"""The server as its unit file has it run: another user, with these capabilities and no others.

What systemd would do is done by unshare, mount and setpriv: the export is mounted by itself, in a
mount namespace of the server's own (ReadWritePaths). The network is one of its own, too.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livedma.nfs.control import Control
from livedma.privilege import holds
from needs import needs

__all__ = ["UNIT", "USER", "Service", "capabilities", "lines", "open_directory", "service"]

_PROJECT = Path(__file__).parents[2]
UNIT = _PROJECT / "packaging" / "livedma.service"
SERVER, CLIENT = "127.0.0.1", "127.0.0.2"
USER = 64123  # nobody has it
_PATIENCE_S = 60
_CAP_SYS_RESOURCE = 24
_OTHERS_MAY_PASS = 0o001

# $1: the export. $2: a directory above the interpreter or these tests that only its owner may
# enter, or nothing; then what of it is shown to others, up to --. What is mounted below the export
# is another filesystem.
_STAGE = """
set -e
ip link set lo up
mount --bind "$1" "$1"
[ ! -d "$1/below" ] || mount -t tmpfs tmpfs "$1/below"
hidden=$2
shift 2
if [ -n "$hidden" ]; then
  whole=$(mktemp -d)
  mount --bind "$hidden" "$whole"
  mount -t tmpfs -o mode=755 tmpfs "$hidden"
  while [ "$1" != -- ]; do
    mkdir -p "$hidden/$1"
    mount --bind "$whole/$1" "$hidden/$1"
    shift
  done
  umount "$whole"
  rmdir "$whole"
fi
shift
exec "$@"
"""


def lines(key: str) -> list[str]:
    """What the unit file says about something, each word."""
    found = [line.partition("=")[2] for line in UNIT.read_text().splitlines() if _is(line, key)]
    return [word for line in found for word in line.split()]


def _is(line: str, key: str) -> bool:
    return line.partition("=")[0].strip() == key


def capabilities() -> tuple[str, ...]:
    return tuple(lines("AmbientCapabilities"))


@dataclass(frozen=True)
class Service:
    """One that runs. said: its lines on standard error."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def export(self) -> Path:
        return self.directory / "export"

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    @property
    def control(self) -> Path:
        return self.directory / "run" / "serve"

    def ask(self, do: str, **parameters: object) -> Any:
        with Control(self.control) as control:
            return control.ask(do, **parameters)

    def within(self, *command: str) -> list[str]:
        """A command where the server is, as root."""
        where = ["nsenter", f"--target={self.process.pid}", "--net", "--mount"]
        return [*where, "timeout", str(_PATIENCE_S), *command]

    def run(self, *command: str) -> str:
        done = subprocess.run(
            self.within(*command), capture_output=True, text=True, timeout=2 * _PATIENCE_S
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{self.said}"
        return done.stdout

    def use(self, *what: str) -> Any:
        """What a client finds (service_client.py)."""
        script = Path(__file__).with_name("service_client.py")
        return json.loads(self.run(sys.executable, str(script), *what))

    def stop(self) -> None:
        """As an administrator would."""
        self.process.terminate()
        assert self.process.wait(_PATIENCE_S) == 0, self.said


def _hidden() -> tuple[str, list[str]]:
    """Returns a home that the interpreter or these tests are in, and where they are in it."""
    used = {Path(one).resolve() for one in (sys.base_prefix, sys.prefix, _PROJECT)}
    for path in used:
        for directory in reversed(path.parents):
            if not directory.stat().st_mode & _OTHERS_MAY_PASS:
                within = [one for one in used if directory in one.parents]
                return str(directory), [str(one.relative_to(directory)) for one in within]
    return "", []


def _limited(memlock: int | None) -> list[str]:
    """What runs a command with this RLIMIT_MEMLOCK, or with the unit's where that is possible."""
    if memlock is not None:
        return ["prlimit", f"--memlock={memlock}"]
    assert lines("LimitMEMLOCK") == ["infinity"]
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    may_raise = hard == resource.RLIM_INFINITY or holds(_CAP_SYS_RESOURCE)
    return ["prlimit", "--memlock=unlimited"] if may_raise else []


@contextmanager
def service(
    *options: str,
    held: Sequence[str],
    directory: Path,
    beside: int | None = None,
    memlock: int | None = None,
) -> Iterator[Service]:
    """A server with these capabilities, once it is there; it is killed at the end. beside: where
    this process is, which was beside one before; without, in a place of its own. memlock: its
    RLIMIT_MEMLOCK; if it is not given, the unit's, unless this process may not raise its own.
    """
    needs(os.geteuid() == 0, "only root can become somebody else")
    names = ",".join(f"+{one.removeprefix('CAP_').lower()}" for one in held)
    sets = f"-all{',' if names else ''}{names}"
    who = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"]
    caps = [f"--{one}={sets}" for one in ("inh-caps", "ambient-caps", "bounding-set")]
    for name, owner in (("export", 0), ("export/below", 0), ("run", USER), ("state", USER)):
        (directory / name).mkdir(exist_ok=True)
        os.chown(directory / name, owner, owner)
    (directory / "export").chmod(0o1777)
    command = [sys.executable, "-m", "livedma.cli", "serve", str(directory / "export")]
    where = ["--listen", SERVER, "--state", str(directory / "state")]
    control = directory / "run" / "serve"
    with (directory / "log").open("wb") as log:
        stage = ["unshare", "--mount", "--net", "--propagation", "private", "bash", "-c", _STAGE]
        home, shown = _hidden()
        stage += ["_", str(directory / "export"), home, *shown, "--"]
        if beside is not None:
            stage = ["nsenter", f"--target={beside}", "--net", "--mount"]
        argv = [*_limited(memlock), "setpriv", *who, *caps, *command, *where]
        argv += ["--control", str(control), *options]
        process = subprocess.Popen([*stage, *argv], stderr=log, cwd="/")
    ret = Service(process, directory)
    try:
        end_s = time.monotonic() + _PATIENCE_S
        while "control socket" not in ret.said:
            assert process.poll() is None and time.monotonic() < end_s, ret.said
            time.sleep(0.02)
        yield ret
    finally:
        process.kill()
        process.wait()


@contextmanager
def open_directory() -> Iterator[Path]:
    """One that everybody may enter, as pytest's are not."""
    directory = Path(tempfile.mkdtemp(prefix="livedma-service-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        with suppress(OSError):
            shutil.rmtree(directory)
