# SPDX-License-Identifier: BSD-2-Clause
"""`livedma watch` as a process on a host, and all that it told."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from livedma.lab.driver import Driver
from livedma.lab.hosts import Host

__all__ = ["LIMIT_S", "Watching", "driven", "livedma", "serving", "wait_for", "watching"]

LIMIT_S = 60.0


def livedma(*words: str) -> list[str]:
    return [sys.executable, "-m", "livedma.cli", *words]


def wait_for(condition: Callable[[], Any], said: Callable[[], str] = str) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, said()
        time.sleep(0.02)
    return found


@dataclass
class Watching:
    """Its process, its objects so far, and what it said to people."""

    process: subprocess.Popen[str]
    seen: list[dict[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def wait_for(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Returns the first object from now on for which it holds."""
        begin = len(self.seen)

        def found() -> Any:
            return next((one for one in self.seen[begin:] if condition(one)), None)

        return dict(wait_for(found, lambda: "\n".join(self.said) + str(self.seen[-1:])))

    def end(self) -> None:
        """Ends it in order; its last object is then there, too."""
        self.process.terminate()
        assert self.process.wait(LIMIT_S) == 0, self.said

    def sessions(self) -> dict[str, tuple[int, int, int]]:
        """Returns operations and bytes, read and written, of each session in all objects."""
        ret: dict[str, tuple[int, int, int]] = {}
        for seen in self.seen:
            for one in seen["sessions"]:
                was = ret.get(one["id"], (0, 0, 0))
                new = one["operations"], one["read_bytes"], one["written_bytes"]
                ret[one["id"]] = was[0] + new[0], was[1] + new[1], was[2] + new[2]
        return ret


@contextmanager
def watching(host: Host, *words: str) -> Iterator[Watching]:
    """Yields it once it sees."""
    command = host.command(*livedma("watch", "--json", "--interval", "0.1s", *words))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        ret = Watching(process)

        def read_objects() -> None:
            for line in process.stdout or ():
                ret.seen.append(json.loads(line))

        def read_words() -> None:
            for line in process.stderr or ():
                ret.said.append(line)

        threads = [threading.Thread(target=one) for one in (read_objects, read_words)]
        for one in threads:
            one.start()
        try:
            wait_for(lambda: ret.said or process.poll() is not None, lambda: str(ret.said))
            yield ret
        finally:
            process.kill()
            for one in threads:
                one.join()


@contextmanager
def serving(host: Host, directory: Any, port: int = 20049) -> Iterator[None]:
    """`livedma serve` on the host's address, without BPF of its own."""
    export = directory / "export"
    export.mkdir()
    words = ("serve", str(export), "--listen", host.ipv4, "--tcp", "off", "--rdma", str(port))
    places = ("--state", str(directory / "state"), "--control", str(directory / "control"))
    log = directory / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            host.command(*livedma(*words, *places, "--squash", "none", "--monitor", "server")),
            stderr=stderr,
        )
    try:
        wait_for(
            lambda: "control socket" in log.read_text() or process.poll() is not None,
            log.read_text,
        )
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def driven(host: Host, address: str, sessions: int, *words: str) -> Driver:
    """`livedma load`, which takes orders."""
    shape = ("--sessions", str(sessions), "--depth", "4", "--size", "16KiB", "--rw", "mix")
    ends = ("--file-size", "256KiB", "--seconds", str(LIMIT_S), "--driven", "--json")
    return Driver(host.command(*livedma("load", address, *shape, *ends, *words)))
