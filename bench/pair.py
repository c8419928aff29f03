# SPDX-License-Identifier: BSD-2-Clause
"""Two processes on two cores, over the loopback interface or over a veth pair between two hosts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from livedma.lab.driver import Driver
from livedma.lab.hosts import Host, two_hosts

CLIENT_CPU, SERVER_CPU = 0, 1
LIMIT_S = 60
LOAD_LIMIT_S = 600
CROWD = ("--depth=1", "--size=4KiB", "--file-size=64KiB")  #: each of a thousand sessions
_TCP_LISTEN, _UDP_UNCONNECTED = "0A", "07"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Link:
    """Where the server is, and how to start a process at either end."""

    name: str
    address: str
    iface: str
    hosts: tuple[Host, Host] | None = None

    def command(self, end: int, argv: Sequence[str]) -> list[str]:
        pinned = ["taskset", "-c", str((CLIENT_CPU, SERVER_CPU)[end]), *argv]
        # Not nsenter: UCX looks for interfaces in /sys, which `ip netns exec` mounts anew.
        return ["ip", "netns", "exec", self.hosts[end].name, *pinned] if self.hosts else pinned


@contextmanager
def links() -> Iterator[list[Link]]:
    """127.0.0.2, not .1: a client on the same port has an address of its own."""
    with two_hosts(mtu=9000) as hosts:
        yield [
            Link("lo", "127.0.0.2", "lo"),
            Link("veth", hosts[1].ipv4, hosts[1].iface, hosts),
        ]


def build(directory: Path, name: str, *libraries: str) -> str:
    binary = str(directory / name)
    options = [f"-l{library}" for library in libraries]
    source = str(_HERE / f"{name}.c")
    subprocess.run(["gcc", "-O3", "-o", binary, source, *options], check=True)
    return binary


def _is_open(pid: int, protocol: str, port: int) -> bool:
    """Whether a socket of the process's network namespace listens on the port."""
    state = _TCP_LISTEN if protocol == "tcp" else _UDP_UNCONNECTED
    for table in (protocol, f"{protocol}6"):
        try:
            rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:  # it has ended
            return False
        if any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == state for row in rows):
            return True
    return False


def await_server(process: subprocess.Popen[str], protocol: str, port: int) -> None:
    end_s = time.monotonic() + LIMIT_S
    while process.poll() is None and time.monotonic() < end_s:
        if _is_open(process.pid, protocol, port):
            return
        time.sleep(0.01)
    raise RuntimeError(f"{process.args!r} does not listen on {protocol} port {port}")


@contextmanager
def started(
    link: Link, argv: Sequence[str], listens: tuple[str, int], pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A server at its end of the link, once it listens."""
    with subprocess.Popen(
        link.command(1, argv),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=pass_fds,
        text=True,
    ) as process:
        try:
            await_server(process, *listens)
            yield process
        finally:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            finally:
                process.kill()


@contextmanager
def serving(
    link: Link,
    directory: Path,
    *options: str,
    pass_fds: Sequence[int] = (),
    livedma: str = "livedma",
) -> Iterator[subprocess.Popen[str]]:
    """livedma serve over RDMA, once it can be asked; its files are in the directory."""
    export, control = directory / "export", directory / "control"
    export.mkdir(parents=True)
    argv = [livedma, "serve", str(export), f"--listen={link.address}", "--squash=none"]
    argv += ["--tcp=off", f"--state={directory / 'state'}", f"--control={control}", *options]
    with started(link, argv, ("udp", 4791), pass_fds) as process:
        while not control.exists():
            time.sleep(0.01)
        yield process


@contextmanager
def loaded(link: Link, sessions: int, *options: str) -> Iterator[Driver]:
    """livedma load at the other end, from when all its sessions run. It must have no error."""
    argv = ["livedma", "load", link.address, "--json", "--no-verify", "--driven"]
    argv += [f"--seconds={LOAD_LIMIT_S}", f"--sessions={sessions}", *options]
    with Driver(link.command(0, argv)) as driver:
        driver.ask(f"sessions {sessions}")
        yield driver
        total = driver.finish()
        if total["errors"]:
            raise RuntimeError(f"{argv}: {total}")


def cpu_s(pid: int) -> float:
    """Of a process so far."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def run_pair(
    link: Link,
    server: Sequence[str],
    client: Sequence[str],
    listens: tuple[str, int],
    env: Mapping[str, str] | None = None,
) -> str:
    """What the client printed. Both must end well, by themselves and in time."""
    everything = {**os.environ, **(env or {})}
    with subprocess.Popen(
        link.command(1, server), env=everything, stdout=subprocess.DEVNULL, text=True
    ) as process:
        try:
            await_server(process, *listens)
            run = subprocess.run(
                link.command(0, client),
                env=everything,
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                timeout=LIMIT_S,
            )
            if process.wait(LIMIT_S):
                raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        finally:
            process.kill()
    return run.stdout
