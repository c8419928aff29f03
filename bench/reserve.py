# SPDX-License-Identifier: BSD-2-Clause
"""What the reserve is worth: the worst latency of short calls beside a client that takes all.

The greedy client reads from a slow store with more calls than the server has data buffers, and
makes COMPOUNDs with two COMMITs, which Python serves: calls queue before the store and before the
threads of the slow path. A modest client on a connection of its own makes SEQUENCE alone, COMMIT
and new sessions meanwhile. The same server has the reserve, and has it not (`Options(reserve=0)`),
in turns.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.pair import Link, await_server, loaded
from bench.report import Line
from livedma.nfs import Client
from livedma.nfs.client.codec.data import commit
from livedma.nfs.client.codec.handle import putfh
from livedma.nfs.control import Control
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from livedma.rpc.rdma_server import Options

ROUNDS = 3
ROUND_S = 10.0
SERVER, GREEDY, STORM, MODEST = (f"127.0.0.{n}" for n in (2, 3, 4, 5))
PORT = 20049
MIB = 1 << 20
STORE_DELAY_S, STORE_WIDTH = 0.02, 8
SLOW_CALLS = 64  # at a time
#: What the modest client does, and how much of the time without the reserve it may take.
KINDS = {"SEQUENCE alone": 0.7, "COMMIT": 0.7, "a new session": 0.7}
#: It needs nothing that is kept back, and has to answer all the same. Its worst is the machine's.
SOCKET = {"control socket": 2.0}

Times = dict[str, list[float]]


def _serve(directory: Path, reserve: int) -> None:
    """A server in this process, until stdin ends."""
    options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=None,
        rdma_port=PORT,
        state=directory / "state",
        control=directory / "control",
        config=Config(squash="none", store_delay_s=STORE_DELAY_S, store_width=STORE_WIDTH),
        rdma=Options(window_bytes=4 * MIB, mapped_bytes=4 * MIB, reserve=reserve),
    )
    with NfsService(directory / "export", options):
        sys.stdin.read()


async def _connect(device: Device) -> Client:
    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    return await Client.connect(SERVER, PORT, connect)


async def _storm() -> None:
    """Makes calls that keep a thread of the slow path in the store, until stdin ends."""
    with Device(STORM) as device:
        async with (
            await _connect(device) as client,
            client.open("/slow", "rw", create=True) as file,
        ):

            async def commit_twice() -> None:
                while True:
                    await client.through.compound(putfh(file.handle), commit(), commit())

            tasks = [asyncio.create_task(commit_twice()) for _ in range(SLOW_CALLS)]
            await asyncio.to_thread(sys.stdin.read)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _times(control: Control) -> Times:
    """How long each call of each kind took, in a round."""
    times: Times = {kind: [] for kind in KINDS | SOCKET}

    async def timed(kind: str, work: Callable[[], Awaitable[object]]) -> object:
        begun_s = time.perf_counter()
        ret = await work()
        times[kind].append(time.perf_counter() - begun_s)
        return ret

    with Device(MODEST) as device:
        async with await _connect(device) as client, client.open("/its", "rw", create=True) as file:
            end_s = time.monotonic() + ROUND_S
            while time.monotonic() < end_s:
                await timed("SEQUENCE alone", client.through.compound)
                await timed("COMMIT", file.commit)
                session = await timed("a new session", client.session)
                await session.close()  # type: ignore[attr-defined]
                await timed("control socket", partial(asyncio.to_thread, control.ask, "sessions"))
    return times


@contextmanager
def _running(*argv: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.reserve", *argv]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _round(directory: Path, reserve: int) -> Times:
    (directory / "export").mkdir(parents=True)
    link = Link("lo", SERVER, "lo")
    how = ("--depth=4", "--size=64KiB", "--file-size=256KiB", "-I", GREEDY)
    with _running("serve", str(directory), str(reserve)) as server:
        await_server(server, "udp", 4791)
        with (
            loaded(link, 64, *how),
            _running("storm"),
            Control(directory / "control") as control,
        ):
            time.sleep(1)
            return asyncio.run(_times(control))


def lines(directory: Path) -> Iterator[Line]:
    found: dict[int, list[Times]] = {1: [], 0: []}
    for number in range(ROUNDS):
        for reserve in found:
            found[reserve].append(_round(directory / f"reserve{number}-{reserve}", reserve))
    for name, figure, kinds in (
        ("worst", max, KINDS),
        ("median", statistics.median, KINDS | SOCKET),
    ):
        for kind, bar in kinds.items():
            kept, none = (
                statistics.median(figure(times[kind]) for times in found[reserve]) * 1e3
                for reserve in (1, 0)
            )
            against = f"without the reserve {none:.1f} ms"
            what = f"{name} {kind}, beside a greedy client"
            yield Line(what, f"{kept:.1f} ms", against, kept / none, bar, is_cost=True)


def main() -> None:
    match sys.argv[1:]:
        case ["serve", directory, reserve]:
            _serve(Path(directory), int(reserve))
        case ["storm"]:
            asyncio.run(_storm())
        case _:
            import tempfile

            with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
                for line in lines(Path(name)):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
