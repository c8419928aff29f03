# SPDX-License-Identifier: BSD-2-Clause
"""Sets a stage for whole runs on this machine: two hosts, a server on one, a load on the other.

With privilege the hosts are namespaces joined by a veth pair, with room for RDMA packets of 4096
bytes; without it they are two addresses of the loopback interface. Server and load are processes of
the same command that people use, each on its half of the cores. However the run ends, nothing of
it stays, even if this process is killed: a keeper outlives it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from livedma import extras
from livedma.errors import LabError, LivedmaError, PortInUseError
from livedma.lab.driver import Driver
from livedma.lab.hosts import Host, two_hosts
from livedma.lab.performers import Load, Server
from livedma.lab.wire import Rule, wire_name, wired_hosts
from livedma.ui.web import token, where

__all__ = ["Stage"]

_MTU = 9000
_ROCE_PORT = 4791
_TMPFS = Path("/dev/shm")
_TMPFS_FREE_LEAST = 1 << 30
_LOOPBACK_NETS = 64
_KEEPER_END_S = 10.0


class Stage:
    """Offers two hosts. isolated: in namespaces of their own; None: if this process can make them.

    rules: what the wire between them does to packets; such a wire needs namespaces, and is slower.
    on_disk: the export is in a directory of this machine's disk. page: `page_url`, an address of
    this machine, shows its servers one after the other, wherever they run.

    Processes that it starts end with the thread that starts them. It is a context manager.
    """

    def __init__(
        self,
        *,
        isolated: bool | None = None,
        rules: Sequence[Rule] = (),
        on_disk: bool = False,
        page: bool = False,
    ) -> None:
        self._hosts: tuple[Host, Host] | None = None
        self.refusal: str | None = None  #: why the hosts are no namespaces, if wanted
        self._server_cores, self._load_cores = _halves(sorted(os.sched_getaffinity(0)))
        self._server_number = 0
        with contextlib.ExitStack() as stack:
            keeper = stack.enter_context(_Keeper())
            is_required = bool(isolated or rules)
            if is_required or (isolated is None and self._can_make_hosts()):
                try:
                    self._hosts = stack.enter_context(_hosts(rules))
                except OSError as error:
                    self.refusal = f"namespaces cannot be made here: {error.strerror or error}"
                    if is_required:
                        raise LabError(self.refusal) from None
            if self._hosts is not None:
                for host in self._hosts:
                    keeper.remember("ip", "netns", "delete", host.name)
                if rules:
                    keeper.remember("ip", "netns", "delete", wire_name())
                self.server_address, self.client_address = (host.ipv4 for host in self._hosts)
            else:
                self.server_address, self.client_address = _loopback_addresses()
            self.directory = _directory(on_disk)
            keeper.remember("rm", "-rf", str(self.directory))
            stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
            self.export = self.directory / "export"
            self.export.mkdir()
            self._page = stack.enter_context(_Page(self.directory)) if page else None
            self._stack = stack.pop_all()

    def _can_make_hosts(self) -> bool:
        """Returns whether it is worth trying; a missing package becomes the refusal."""
        if os.geteuid():
            return False
        if not extras.is_installed("pyroute2"):
            self.refusal = f"two hosts need pyroute2: {extras.install_line('lab')}"
            return False
        return True

    @property
    def is_isolated(self) -> bool:
        return self._hosts is not None

    @property
    def interface(self) -> str:
        """Returns the server's interface."""
        return self._hosts[0].iface if self._hosts is not None else "lo"

    @property
    def page_url(self) -> str | None:
        """Returns the page's URL with its token; None if there is no page."""
        return None if self._page is None else self._page.url

    def serve(self, *options: str) -> Server:
        """Starts `livedma serve` on the first host; returns as soon as it can be reached."""
        self._server_number += 1
        name = self.directory / f"server-{self._server_number}"
        argv = ["serve", str(self.export), "--listen", self.server_address, "--tcp", "off"]
        argv += ["--squash", "none", "--state", f"{name}.state", "--control", f"{name}.control"]
        handed_down = []
        if self._page is not None:
            argv += self._page.options
            handed_down.append(self._page.fd)
        command = self._command(0, self._server_cores, *argv, *options)
        return self._stack.enter_context(
            Server(
                command,
                control=Path(f"{name}.control"),
                log=Path(f"{name}.log"),
                handed_down=handed_down,
            )
        )

    def load(self, *options: str) -> Load:
        """Starts `livedma load` on the second host against the first."""
        argv = ["load", self.server_address, "--source", self.client_address, "--json"]
        return self._stack.enter_context(Load(self._command(1, self._load_cores, *argv, *options)))

    def drive(self, *options: str) -> Driver:
        """Starts `livedma load` on the second host, to be driven by orders."""
        argv = ["load", self.server_address, "--source", self.client_address, "--json", "--driven"]
        command = self._command(1, self._load_cores, *argv, *options)
        return self._stack.enter_context(Driver(command))

    def _command(self, host: int, cores: str, *argv: str) -> list[str]:
        """Returns a command on a host; the kernel ends it when the thread that starts it ends."""
        command = ["setpriv", "--pdeathsig", "TERM", "taskset", "--cpu-list", cores]
        command += [sys.executable, "-m", "livedma.cli", *argv]
        return self._hosts[host].command(*command) if self._hosts is not None else command

    def close(self) -> None:
        """Ends what runs and removes everything."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Page:
    """Shows the page of the servers: it has a socket of this host, and one token for them all."""

    def __init__(self, directory: Path) -> None:
        file = directory / "token"
        try:
            secret = token.fresh(file)
            try:
                self._socket = where.listening(where.Where())
            except PortInUseError:
                self._socket = where.listening(where.Where(port=0))
        except LivedmaError as error:
            raise LabError(str(error)) from None
        self.fd = self._socket.fileno()
        self.url = where.url_of(self._socket, secret)
        self.options = ("--web", f"fd:{self.fd}", "--web-token", str(file))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


class _Keeper:
    """Runs a process that cleans up when this one is gone, also if that was killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", 'while read -r line; do todo="$line; $todo"; done; eval "$todo"'],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            bufsize=1,
        )

    def remember(self, *command: str) -> None:
        """Adds a command; the last is run first. After a clean end it has no effect."""
        assert self._process.stdin is not None
        self._process.stdin.write(shlex.join(command) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=_KEEPER_END_S)


def _halves(cores: list[int]) -> tuple[str, str]:
    """Returns cores for the server and for the load; both use a single core."""
    middle = len(cores) // 2
    first, second = (cores[:middle], cores[middle:]) if middle else (cores, cores)
    return ",".join(map(str, first)), ",".join(map(str, second))


@contextlib.contextmanager
def _hosts(rules: Sequence[Rule]) -> Iterator[tuple[Host, Host]]:
    with contextlib.ExitStack() as stack:
        if rules:
            near, far, _ = stack.enter_context(wired_hosts(*rules, mtu=_MTU))
            yield near, far
        else:
            yield stack.enter_context(two_hosts(_MTU))


def _directory(on_disk: bool) -> Path:
    """Makes a directory in memory if there is room: mostly, the disk is not to be measured."""
    if on_disk:
        return Path(tempfile.mkdtemp(prefix="livedma-stage-", dir="/var/tmp"))
    base = None
    with contextlib.suppress(OSError):
        if os.access(_TMPFS, os.W_OK) and shutil.disk_usage(_TMPFS).free >= _TMPFS_FREE_LEAST:
            base = _TMPFS
    return Path(tempfile.mkdtemp(prefix="livedma-stage-", dir=base))


def _loopback_addresses() -> tuple[str, str]:
    """Returns 127.0.0.1 and .2, or the next pair that no RoCE device uses."""
    for net in range(_LOOPBACK_NETS):
        pair = (f"127.0.{net}.1", f"127.0.{net}.2")
        if all(map(_is_free, pair)):
            return pair
    raise LabError("other devices have all addresses of the loopback interface that were tried")


def _is_free(address: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, _ROCE_PORT))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise LabError(f"UDP port {_ROCE_PORT} of {address}: {error.strerror}") from None
    return True
