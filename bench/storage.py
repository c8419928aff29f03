# SPDX-License-Identifier: BSD-2-Clause
"""Storage: our server, NFS-Ganesha and nbdkit, from the page cache, each by a client of one thread.

Server and client have a core each. NFS servers are asked by the same client, `livedma load`; nbdkit
by peer_nbd.c, since fio would be what is measured. All of them read the same amount of data, which
is in memory, and nobody compares it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.pair import LIMIT_S, Link, build, cpu_s, serving, started
from bench.report import Line, per_second, rates

MIB = 1 << 20
SERVER, CLIENT = "127.0.0.2", "127.0.0.3"
SECONDS = 3
_DATA = 256 * MIB
_NBD_PORT, _GANESHA_PORT, _RDMA_PORT = 24900, 24901, 24902
_LOOPBACK = Link("lo", SERVER, "lo")

_GANESHA = """
NFS_CORE_PARAM {{ NFS_Port = {port}; Protocols = 4; Enable_NLM = false;
  Enable_RQUOTA = false; }}
NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = {state}; Minor_Versions = 1, 2; }}
EXPORT {{ Export_Id = 1; Path = {directory}; Pseudo = /; Access_Type = RW; Squash = No_Root_Squash;
  SecType = sys; Protocols = 4; Transports = TCP; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = FATAL; }}
"""


@dataclass(frozen=True)
class Work:
    """What is asked for, and what ours should reach of each peer."""

    name: str
    sessions: int
    depth: int
    size: int
    pattern: str
    bars: dict[str, float]


WORKS = (
    Work("4 KiB random read, 1 x 32", 1, 32, 4096, "random", {"Ganesha": 2, "nbdkit": 1}),
    Work("4 KiB random read, 256 x 1", 256, 1, 4096, "random", {"Ganesha": 2, "nbdkit": 1}),
    Work("1 MiB sequential read, 1 x 4", 1, 4, MIB, "sequential", {"Ganesha": 1.5, "nbdkit": 1}),
)


@dataclass(frozen=True)
class Result:
    """Operations a second, and CPU time of the server for each."""

    rate: float
    cpu_us: float


class Contestant(Protocol):
    name: str

    def run(self, work: Work) -> Result: ...


def _load(work: Work, server_pid: int, *where: str) -> Result:
    """By livedma load. CPU time counts from the first interval on: before, files are made."""
    argv = ["livedma", "load", SERVER, *where, "--json", "--no-verify", f"--seconds={SECONDS}"]
    argv += [f"--sessions={work.sessions}", f"--depth={work.depth}", f"--size={work.size}"]
    argv += [f"--pattern={work.pattern}", f"--file-size={_DATA // work.sessions}"]
    seen: list[tuple[float, dict[str, float]]] = []
    command = _LOOPBACK.command(0, argv)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append((cpu_s(server_pid), json.loads(line)))
    if process.returncode or seen[-1][1]["errors"]:
        raise RuntimeError(f"{work.name}: {seen[-1:]}")
    *intervals, (_, total) = seen
    (first_cpu_s, first), (last_cpu_s, last) = intervals[0], intervals[-1]
    operations = total["operations_per_s"] * (last["at_s"] - first["at_s"])
    return Result(total["operations_per_s"], (last_cpu_s - first_cpu_s) / operations * 1e6)


class Ours:
    name = "ours"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def run(self, work: Work) -> Result:
        return _load(work, self._pid, f"--port={_RDMA_PORT}", f"--source={CLIENT}")


class Ganesha:
    name = "Ganesha"

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def run(self, work: Work) -> Result:
        return _load(work, self._pid, "--proto=tcp", f"--port={_GANESHA_PORT}")


class Nbdkit:
    name = "nbdkit"

    def __init__(self, pid: int, client: str) -> None:
        self._pid, self._client = pid, client

    def run(self, work: Work) -> Result:
        figures = map(str, (_NBD_PORT, work.sessions, work.depth, work.size, SECONDS))
        argv = [self._client, SERVER, *figures, work.pattern]
        before_s = cpu_s(self._pid)
        done = subprocess.run(
            _LOOPBACK.command(0, argv),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
        rate = float(done.stdout.split()[0])
        return Result(rate, (cpu_s(self._pid) - before_s) / (rate * SECONDS) * 1e6)


@contextmanager
def _contestants(directory: Path) -> Iterator[list[Contestant]]:
    with ExitStack() as stack:
        options = (f"--rdma={_RDMA_PORT}", "--credits=256")
        first = stack.enter_context(serving(_LOOPBACK, directory / "ours", *options))
        ganesha = _directory(directory / "ganesha")
        config = directory / "ganesha.conf"
        state = _directory(directory / "ganesha-state")
        config.write_text(_GANESHA.format(port=_GANESHA_PORT, directory=ganesha, state=state))
        pid = directory / "ganesha.pid"
        argv = ["ganesha.nfsd", "-F", "-f", str(config), "-p", str(pid), "-L", "/dev/null"]
        second = stack.enter_context(started(_LOOPBACK, argv, ("tcp", _GANESHA_PORT)))
        image = directory / "nbd.img"
        image.write_bytes(os.urandom(MIB) * (_DATA // MIB))
        argv = ["nbdkit", "-f", "-i", SERVER, "-p", str(_NBD_PORT), "file", str(image)]
        third = stack.enter_context(started(_LOOPBACK, argv, ("tcp", _NBD_PORT)))
        client = build(directory, "peer_nbd")
        yield [Ours(first.pid), Ganesha(second.pid), Nbdkit(third.pid, client)]


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


def lines(directory: Path) -> Iterator[Line]:
    with _contestants(directory) as contestants:
        for work in WORKS:
            yield from _compared(work, contestants)
        yield _crowd()


def _crowd() -> Line:
    """A thousand sessions on one connection: all are served, and none much worse than another."""
    argv = ["livedma", "load", SERVER, f"--port={_RDMA_PORT}", f"--source={CLIENT}", "--json"]
    argv += ["--sessions=1000", "--depth=1", "--size=4096", "--file-size=65536", "--rw=mix"]
    command = _LOOPBACK.command(0, [*argv, f"--seconds={SECONDS}"])
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=2 * LIMIT_S
    )
    total = json.loads(done.stdout.splitlines()[-1])
    per_session = sorted(one["operations_per_s"] for one in total["sessions"])
    if total["errors"] or len(per_session) != 1000:
        raise RuntimeError(f"1,000 sessions: {total}")
    slowest, fastest = per_session[0], per_session[-1]
    return Line(
        "4 KiB mix, 1,000 sessions, one connection",
        per_second(total["operations_per_s"]),
        f"slowest {slowest:.1f}/s, fastest {fastest:.1f}/s",
        slowest / fastest,
        0.5,
    )


def _compared(work: Work, contestants: Sequence[Contestant]) -> Iterator[Line]:
    costs: dict[str, list[float]] = {one.name: [] for one in contestants}

    def rate_of(one: Contestant) -> Callable[[], float]:
        def run() -> float:
            result = one.run(work)
            costs[one.name].append(result.cpu_us)
            return result.rate

        return run

    found = rates({one.name: rate_of(one) for one in contestants})

    def shown(name: str) -> str:
        return f"{per_second(found[name])}, {statistics.median(costs[name]):.1f} us CPU"

    for name, bar in work.bars.items():
        ratio = found["ours"] / found[name]
        yield Line(work.name, shown("ours"), f"{name} {shown(name)}", ratio, bar)
