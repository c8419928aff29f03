# SPDX-License-Identifier: BSD-2-Clause
"""Debian systems that have Python and nothing else, and machines that run on a copy of one.

A root is built once by mmdebstrap and cached where the guests' image is. A machine is an overlay on
it, so that the root stays clean, in namespaces of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from livedma.errors import LabError
from livedma.lab import image, packages
from needs import needs

__all__ = ["SERVE_AND_LOAD", "SUITES", "Machine", "clean_root", "room", "totals"]

#: Debian 12 and 13, and the Python that each has.
SUITES = {"bookworm": "3.11", "trixie": "3.13"}
_INCLUDED = ("python3", "python3-venv")
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_USER = 1000
_MEMORY = "/dev/shm"
_MEMORY_FREE_LEAST = 2 << 30
_LIMIT_S = 180
# Its own mounts, network and processes: whatever a command leaves running ends with it.
_APART = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")
_ENTER = """
set -e
ip link set lo up
mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$AT/upper,workdir=$AT/work" "$AT/root"
mount -t proc proc "$AT/root/proc"
mount --rbind /sys "$AT/root/sys"
mount --rbind /dev "$AT/root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$AT/root/dev/shm"
mkdir -p "$AT/root/mnt/shared"
mount --bind "$SHARED" "$AT/root/mnt/shared"
path=/usr/sbin:/usr/bin:/sbin:/bin
exec env -i PATH=$path HOME="$HOME_INSIDE" LC_ALL=C.UTF-8 chroot "$AT/root" "$@"
"""
#: With livedma in /opt/livedma: a server as people start it, and a second of load over each
#: transport, as JSON; what is read is verified.
SERVE_AND_LOAD = """
set -e
directory=$(mktemp -d)
mkdir "$directory/export"
chmod 1777 "$directory/export" # root of a client is nobody here
livedma=/opt/livedma/bin/livedma
$livedma serve "$directory/export" 2> "$directory/log" > "$directory/log" &
server=$!
for _ in $(seq 300); do grep -q "control socket" "$directory/log" && break; sleep 0.1; done
for proto in rdma tcp; do
    $livedma load 127.0.0.1 --proto $proto --sessions 2 --depth 2 --seconds 1 --json ||
        { cat "$directory/log"; exit 1; }
done
$livedma why > /dev/null
kill -INT $server
wait $server
"""
_WORDS_OF_A_TOTAL = {"plan", "operations"}


def clean_root(suite: str) -> Path:
    """The root of a release; skips the test where it cannot be made."""
    needs(os.geteuid() == 0, "only root makes the root of a Debian system")
    sources = _sources(suite)
    recipe = hashlib.sha256(repr((suite, _INCLUDED, _LEFT_OUT)).encode()).hexdigest()[:16]
    final = image.cache_directory() / f"clean-{suite}-{recipe}"
    if final.is_dir():
        return final
    work = final.with_name(f"{final.name}.tmp-{os.getpid()}")
    work.mkdir(parents=True)
    try:
        listed = work / "debian.sources"
        listed.write_text(sources)
        options = ["--variant=minbase", "--mode=root", "--format=directory", "--quiet"]
        options += ['--aptopt=Apt::Install-Recommends "false"', f"--include={','.join(_INCLUDED)}"]
        options += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        apart = ("unshare", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child")
        program = image.tool("mmdebstrap")
        packages.output(*apart, program, *options, suite, work / "root", listed)
        with contextlib.suppress(OSError):  # somebody else was faster
            (work / "root").rename(final)
    except LabError as error:
        needs(False, f"a root of Debian {suite} cannot be made: {error}")
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _sources(suite: str) -> str:
    """Where this machine's apt finds Debian, for another release."""
    here = "bookworm"
    files = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    texts = [one.read_text() for one in files if one.is_file() and one.suffix == ".sources"]
    found = [one for one in texts if f"{here}-updates" in one.split()]
    needs(found, "apt's sources do not say where Debian is")
    return found[0].replace(here, suite)


def totals(said: str) -> list[dict[str, Any]]:
    """Returns the results of loads, without their intervals."""
    lines = [json.loads(line) for line in said.splitlines()]
    return [one for one in lines if one.keys() >= _WORDS_OF_A_TOTAL]


class Machine:
    """A copy of a root. shared: a directory of this host that it sees as /mnt/shared."""

    def __init__(self, root: Path, directory: Path, shared: Path) -> None:
        self._root, self._directory, self._shared = root, directory, shared
        for name in ("upper", "work", "root"):
            (directory / name).mkdir(parents=True)
        self.run("mkdir", "-p", "/home/user")
        self.run("chown", f"{_USER}:{_USER}", "/home/user")

    def run(self, *argv: str, is_root: bool = True) -> subprocess.CompletedProcess[str]:
        """A command to its end, with what it says; nothing that it starts outlives it."""
        return subprocess.run(
            [*_APART, "sh", "-c", _ENTER, "enter", *_as_user(is_root), *argv],
            env=os.environ
            | {
                "ROOT": str(self._root),
                "AT": str(self._directory),
                "SHARED": str(self._shared),
                "HOME_INSIDE": "/root" if is_root else "/home/user",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )


def _as_user(is_root: bool) -> Sequence[str]:
    if is_root:
        return ()
    return ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")


@contextlib.contextmanager
def room() -> Iterator[Path]:
    """A directory for whole systems: in memory if that has room, as disks are slow."""
    base = _MEMORY if shutil.disk_usage(_MEMORY).free >= _MEMORY_FREE_LEAST else "/var/tmp"
    with tempfile.TemporaryDirectory(prefix="livedma-roots-", dir=base) as path:
        yield Path(path)
