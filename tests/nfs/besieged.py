# SPDX-License-Identifier: BSD-2-Clause
"""A server under attack: its process, a canary beside its export, good sessions, and intruders.

Whatever intruders get is searched for the canary's bytes on its way.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.nfs import calling
from tests.nfs.accelerating import FileClient, rdma_peer
from tests.nfs.besieged_server import RDMA_PORT, READY
from tests.nfs.calling import GETFH, op
from tests.nfs.open_calls import by_name, open_args
from tests.rpc.records import encode_record

from livedma.nfs.client import Client
from livedma.nfs.control import Control
from livedma.nfs.numbers import PROGRAM, VERSION, Op, Status
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from livedma.rpc.message import AuthSys, Call, encode_call
from livedma.rpc.service import Part

PATIENCE_S = 60.0
DESCRIPTORS = 2  # of an RDMA connection
ACCEPTING = 3  # threads that the server makes when several want to connect, and keeps
CANARY = b"the canary that nobody may see"
CONTENT = bytes(range(251)) * 300
GOOD = AuthSys(0, b"good", 1000, 1000)
STRANGER = AuthSys(0, b"stranger", 4242, 4242)
OTHER = AuthSys(0, b"other", 4343, 4343)
_NET = rdma_peer.HERE.rpartition(".")[0]
SERVER, GOOD_ADDRESS, INTRUDERS = f"{_NET}.21", f"{_NET}.22", f"{_NET}.23"
ELSEWHERE, DYING = f"{_NET}.24", f"{_NET}.25"
_owners = itertools.count(1)


def wait_until(condition: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"in vain: {what}"
        time.sleep(0.01)


def unrevealed(data: bytes) -> bytes:
    """What the server gave to an intruder."""
    assert CANARY not in data
    return data


class Good(threading.Thread):
    """Clients over RDMA and TCP that write, read, compare, make, rename and remove all the time."""

    def __init__(self, tcp_port: int) -> None:
        super().__init__(name="good")
        self.rounds = {"rdma": 0, "tcp": 0}
        self.wrong: list[BaseException] = []
        self.clients: dict[str, Client] = {}
        self._tcp_port = tcp_port
        self._is_enough = threading.Event()

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        with Device(GOOD_ADDRESS) as device:

            async def over_rdma(address: str, port: int) -> Transport:
                return await rdma_client.connect(address, port, device=device)

            await asyncio.gather(
                self._watched("rdma", RDMA_PORT, over_rdma),
                self._watched("tcp", self._tcp_port, "tcp"),
            )

    async def _watched(self, kind: str, port: int, transport: Any) -> None:
        try:
            client = await Client.connect(SERVER, port, transport, credential=GOOD, slots=4)
            async with client:
                self.clients[kind] = client
                await self._work(client, kind)
                assert (client.identity.recoveries, client.connection.made) == (0, 1)
        except BaseException as error:  # the test's thread raises it
            self.wrong.append(error)

    async def _work(self, client: Client, kind: str) -> None:
        rng = random.Random(kind)
        known = bytearray(200_000)
        async with await client.open(f"/good/{kind}", "rw", create=True) as file:
            await file.write(0, bytes(known))
            while not self._is_enough.is_set():
                offset, data = rng.randrange(100_000), rng.randbytes(rng.randrange(1, 100_000))
                await file.write(offset, data)
                known[offset : offset + len(data)] = data
                assert await file.read(0, len(known)) == known
                await file.commit()
                await client.mkdir(f"/good/{kind}-made")
                await client.rename(f"/good/{kind}-made", f"/good/{kind}-renamed")
                names = {entry.name for entry in await client.listdir("/good")}
                assert {kind, f"{kind}-renamed"} <= names
                await client.remove(f"/good/{kind}-renamed")
                self.rounds[kind] += 1
                await asyncio.sleep(0.02)  # others need the machine, too

    def check(self) -> None:
        """Both have gone on and are well."""
        before = dict(self.rounds)
        wait_until(
            lambda: self.wrong or all(self.rounds[one] >= before[one] + 2 for one in before),
            "good sessions go on",
        )
        assert not self.wrong, self.wrong

    def end(self) -> None:
        self._is_enough.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


def snapshot(directory: Path) -> list[tuple[object, ...]]:
    """All that a file's owner would see of a change."""
    ret: list[tuple[object, ...]] = []
    for path in sorted([directory, *directory.rglob("*")]):
        stat = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        ret.append(
            (str(path), stat.st_mode, stat.st_nlink, stat.st_mtime_ns, stat.st_ctime_ns, data)
        )
    return ret


@dataclass
class Siege:
    """What tests have."""

    directory: Path
    process: subprocess.Popen[bytes]
    control: Control
    tcp_port: int
    good: Good
    device: Device  # of intruders
    canary: list[tuple[object, ...]] = field(default_factory=list)
    connections: int = 0
    fds: int = 0
    threads: int = 0
    rss_bytes: int = 0

    @property
    def export(self) -> Path:
        return self.directory / "export"

    @property
    def file(self) -> Path:
        """The one that intruders open."""
        return self.export / "file"

    def count_fds(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def count_threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def measure_rss(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def begin(self) -> None:
        """Remembers how things are in peace."""
        self.good.check()
        with Intruder(self) as first:  # the last one that came is remembered
            first.enter()
            first.leave()
        wait_until(lambda: len(self.control.ask("connections")) == 2, "it goes")
        self.canary = snapshot(self.directory / "canary")
        self.connections = len(self.control.ask("connections"))
        # What an operation opens for itself comes and goes.
        self.fds = min(self.count_fds() for _ in range(200))
        self.threads = self.count_threads() + ACCEPTING
        self.rss_bytes = self.measure_rss()

    def check(self) -> None:
        """An attack is over: nothing is left of it, and nobody was hurt."""
        self.good.check()
        assert self.process.poll() is None
        assert snapshot(self.directory / "canary") == self.canary
        assert self.log() == "", self.log()
        wait_until(self._has_few_connections, "the intruders' connections go")
        wait_until(lambda: self.count_threads() <= self.threads, "threads end")
        wait_until(self._has_few_descriptors, "descriptors are closed")
        wait_until(self._has_all_buffers, "buffers come back")
        self.good.check()

    def count_dying(self) -> int:
        """Connections whose peer is dead, which takes a while to be noticed."""
        return sum(one["peer"] == DYING for one in self.control.ask("connections"))

    def _has_few_connections(self) -> bool:
        connections = self.control.ask("connections")
        return sum(one["peer"] != DYING for one in connections) == self.connections

    def _has_few_descriptors(self) -> bool:
        return self.count_fds() <= self.fds + DESCRIPTORS * self.count_dying()

    def _has_all_buffers(self) -> bool:
        connections = self.control.ask("connections")
        rdma = [one for one in connections if one["kind"] == "rdma" and one["peer"] != DYING]
        return all(not one["buffers_taken"] and not one["buffers_waited_for"] for one in rdma)

    def sessions(self) -> int:
        return len(self.control.ask("sessions"))

    def await_leases(self) -> None:
        """Until of all clients those are left that are good."""
        wait_until(lambda: self.sessions() == len(self.good.clients), "sessions expire")


@contextmanager
def besieged(directory: Path) -> Iterator[Siege]:
    """A server; it has to end well."""
    for name in ("export/good", "canary/inner"):
        (directory / name).mkdir(parents=True)
    os.chown(directory / "export/good", 1000, 1000)
    (directory / "export/good").chmod(0o700)
    (directory / "export").chmod(0o1777)
    (directory / "canary/inner/secret").write_bytes(CANARY * 100)
    (directory / "export/way-out").symlink_to("../canary/inner/secret")
    (directory / "export/file").write_bytes(CONTENT)
    (directory / "export/file").chmod(0o666)
    (directory / "export/other").touch()
    (directory / "export/other").chmod(0o666)
    (directory / "export/many").mkdir()
    for number in range(300):
        (directory / f"export/many/{number:0100}").touch()
    control_path = directory / "control"
    command = [sys.executable, str(Path(__file__).with_name("besieged_server.py"))]
    command += [str(directory / "export"), str(directory / "state"), str(control_path), SERVER]
    with ExitStack() as stack:
        log = stack.enter_context((directory / "log").open("wb"))
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
        stack.callback(_end, process)
        assert process.stdout is not None
        assert process.stdout.readline() == READY
        control = stack.enter_context(Control(control_path))
        (tcp_port,) = control.ask("server")["tcp"]
        good = Good(tcp_port)
        good.start()
        stack.callback(good.end)
        device = stack.enter_context(Device(INTRUDERS))
        siege = Siege(directory, process, control, tcp_port, good, device)
        siege.begin()
        yield siege
        good.end()
        assert not good.wrong, good.wrong
        left = {one["id"] for one in control.ask("sessions")}
        assert not left & {one.through.session_id.hex() for one in good.clients.values()}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
        assert siege.log() == "", siege.log()


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


class Intruder(FileClient):
    """Over RDMA; has the file open after `enter`."""

    def __init__(
        self,
        siege: Siege,
        credential: AuthSys = STRANGER,
        device: Device | None = None,
        **peer: Any,
    ) -> None:
        self.peer = rdma_peer.Peer(device or siege.device, SERVER, **peer)
        calling.Peer.__init__(self, self._searched, credential=credential)  # type: ignore[arg-type]
        self._data: bytes | None = None
        self._room = 0
        self.number = 0
        self.is_leaving = False
        self.verifier = calling.VERIFIER

    def __enter__(self) -> Self:
        return self

    def enter(self, owner: bytes | None = None) -> None:
        """A client of its own unless told, with a session in which the file is open."""
        super().enter(owner or b"intruder %d" % next(_owners))

    def exchange(self, owner: bytes = b"owner", **options: object) -> tuple[int, int, int]:
        return super().exchange(owner, verifier=self.verifier, **options)

    def session(self, owner: bytes = b"owner", **options: object) -> tuple[int, bytes]:
        self.client, made = super().session(owner, **options)
        return self.client, made

    def _searched(self, wire: object, message: bytes) -> Sequence[Part]:
        parts = self._over_the_wire(wire, message)
        for part in parts:
            assert isinstance(part, bytes)
            unrevealed(part)
        unrevealed(self.peer.memory)
        return parts

    def message(self, *ops: bytes, handle: bytes | None = None) -> bytes:
        """A real call in the session, on the file; its sender may send it wrongly."""
        call = Call(next(self._xids), PROGRAM, VERSION, 1, self.credential)
        at = op(Op.PUTFH, lambda out: out.opaque(handle or self.handle))
        return encode_call(call, calling.compound(self.sequence(), at, *ops))

    def open_op(self, name: bytes, access: int = 3, owner: bytes = b"opener") -> bytes:
        """OPEN of what is there, in the current directory."""
        return op(Op.OPEN) + bytes(open_args(by_name(name), access=access, owner=owner))

    def lookup(self, name: bytes) -> bytes:
        """The handle of what has this name in the root."""
        found = self.do(calling.PUTROOTFH, op(Op.LOOKUP, lambda out: out.opaque(name)), GETFH)
        return found.last.opaque()

    def take_over(self, before: FileClient) -> None:
        assert isinstance(before, Intruder)
        super().take_over(before)
        self.client = before.client

    def leave(self) -> None:
        """Politely: files closed, session and client destroyed."""
        self.close_file()
        assert self.status(calling.destroy_session(self.id)) == Status.OK
        assert self.status(calling.destroy_clientid(self.client)) == Status.OK

    def goes_on(self) -> None:
        """The connection and the slot are as if nothing had been."""
        self.number -= 1
        assert self.read(0, 8).status == Status.OK


class Stream:
    """A TCP connection from an address of one's choice: a program for `calling.Peer`."""

    def __init__(self, siege: Siege, source: str = INTRUDERS) -> None:
        self.sock = socket.create_connection((SERVER, siege.tcp_port), PATIENCE_S, (source, 0))

    def __call__(self, _wire: object, message: bytes) -> Sequence[Part]:
        self.send(message)
        return [self.receive()]

    def send(self, message: bytes) -> None:
        self.sock.sendall(encode_record(message))

    def receive(self) -> bytes:
        length = int.from_bytes(self._exactly(4), "big") & 0x7FFFFFFF
        return unrevealed(self._exactly(length))

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self.sock.recv(length - len(data))
            if not part:
                raise ConnectionResetError("the server has cut the connection")
            data += part
        return bytes(data)

    def peer(self, credential: AuthSys = STRANGER) -> calling.Peer:
        """Returns the principal that calls by it."""
        return calling.Peer(self, credential=credential)  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()
