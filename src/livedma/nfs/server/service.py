# SPDX-License-Identifier: BSD-2-Clause
"""Makes a whole server: the export and its state, its transports, and the control socket."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from livedma._native.accelerator import Accelerator
from livedma.errors import LivedmaError, PortInUseError
from livedma.memory import WindowPins
from livedma.nfs.control import ControlServer
from livedma.nfs.server.comebacks import Comebacks
from livedma.nfs.server.config import Config
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.guidance import Guidance
from livedma.nfs.server.guided_program import GuidedProgram
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist, make_default
from livedma.nfs.server.program import NfsProgram
from livedma.nfs.server.store import Store
from livedma.rdma import Device
from livedma.rdma.interface import addresses
from livedma.rpc.rdma_server import Options as RdmaOptions
from livedma.rpc.rdma_server import RdmaConnection, RdmaServer
from livedma.rpc.service import Connection, Network
from livedma.rpc.tcp_server import TcpServer

__all__ = ["NfsService", "ServiceOptions"]


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Says where and how a server serves.

    addresses: empty means all of this host. tcp_port, rdma_port: None means not at all.
    pin_limit: the bytes that the connections of a client's address may have pinned together; None:
    any number. state: a directory outside of the export; None: the default. control: the path of
    the control socket; None: it has none.
    """

    addresses: Sequence[str] = ()
    tcp_port: int | None = 2049
    rdma_port: int | None = 20049
    allow: Sequence[Network] = ()
    threads: int = 8
    pin_limit: int | None = None
    state: Path | None = None
    control: Path | None = None
    config: Config = field(default_factory=Config)
    rdma: RdmaOptions = field(default_factory=RdmaOptions)


class NfsService:
    """Serves an export from the moment it is made until `close`. It is a context manager."""

    def __init__(self, directory: Path, options: ServiceOptions | None = None) -> None:
        self.directory = directory
        options = options or ServiceOptions()
        rdma = options.rdma
        #: keeps the memory of connections over RDMA in its place, as far as that is allowed
        self.pins = WindowPins(rdma.window_bytes, options.pin_limit)
        rdma = replace(rdma, kind=replace(rdma.kind, pins=self.pins))
        self.options = options = replace(options, rdma=rdma)
        self.started_s = time.time()
        self.tcp: list[TcpServer] = []
        self.rdma: list[RdmaServer] = []
        self.control: ControlServer | None = None
        with ExitStack() as stack:
            self.server = self._make_server(stack)
            self.guidance = Guidance(self)
            self.comebacks = Comebacks(self)
            self.server.sessions.lacks_memory = _lacks_memory
            self._program = GuidedProgram(NfsProgram(self.server), self.guidance)
            self.server.start()
            stack.callback(self.server.stop)
            if options.tcp_port is not None:
                for address in options.addresses or [""]:
                    self.tcp.append(stack.enter_context(self._listen_tcp(address)))
            if options.rdma_port is not None:
                for address in options.addresses or addresses():
                    self.rdma.append(self._listen_rdma(stack, address))
            if options.control is not None:
                self.control = ControlServer(options.control, Facts(self).methods())
                stack.callback(self.control.close)
            self._stack = stack.pop_all()

    def _make_server(self, stack: ExitStack) -> Server:
        if not self.directory.is_dir():
            raise LivedmaError(f"{self.directory} is no directory")
        state = self.options.state or make_default(self.directory)
        if state.resolve().is_relative_to(self.directory.resolve()):
            raise LivedmaError(f"{state} would be exported, and it is secret; take another --state")
        config = self.options.config
        persist = stack.enter_context(Persist(state))
        try:
            store = Store(self.directory, secret=persist.secret("handles"), config=config)
        except OSError as error:
            raise LivedmaError(f"{self.directory} cannot be exported: {error.strerror}") from None
        stack.callback(store.close)
        self.accelerator = Accelerator(
            store.changes,
            store.write_verifier,
            threads=self.options.threads,
            has_reserve=self.options.rdma.reserve > 0,
        )
        stack.callback(self.accelerator.close)
        self._set_store_speed(config)
        return Server(store, persist, config, accelerator=self.accelerator)

    def _listen_tcp(self, address: str) -> TcpServer:
        options = self.options
        return TcpServer(
            self._program,
            address,
            options.tcp_port or 0,
            allow=options.allow,
            threads=options.threads,
        )

    def _listen_rdma(self, stack: ExitStack, address: str) -> RdmaServer:
        options = self.options
        device = stack.enter_context(Device(address))
        try:
            made = RdmaServer(
                device,
                options.rdma_port or 0,
                self._program,
                options.rdma,
                allow=options.allow,
            )
        except PortInUseError as error:
            raise PortInUseError(f"{error}; take another one by --rdma PORT") from None
        rdma = stack.enter_context(made)
        rdma.set_native_program(self.accelerator.capsule)
        rdma.expect = lambda peer: self.guidance.expect(peer) or self.comebacks.expect(peer)
        return rdma

    def _set_store_speed(self, config: Config) -> None:
        self.accelerator.store_delay_s = config.store_delay_s
        self.accelerator.store_width = config.store_width

    def change(self, options: ServiceOptions) -> None:
        """Changes what can change while it serves: which networks may connect, what a new
        connection and a new session get, as which users calls act, how the store behaves. All else
        in `options` has no effect.
        """
        now = self.options
        given = options.config
        config = replace(
            now.config,
            slots=given.slots,
            squash=given.squash,
            anonymous_uid=given.anonymous_uid,
            anonymous_gid=given.anonymous_gid,
            sync_metadata=given.sync_metadata,
            store_delay_s=given.store_delay_s,
            store_width=given.store_width,
        )
        rdma = replace(
            now.rdma,
            window_bytes=options.rdma.window_bytes,
            mapped_bytes=options.rdma.mapped_bytes,
            buffer_bytes=options.rdma.buffer_bytes,
            inline_bytes=options.rdma.inline_bytes,
            credits=options.rdma.credits,
            kind=replace(options.rdma.kind, pins=self.pins),
        )
        self.pins.limit = options.pin_limit
        self.options = replace(
            now, allow=options.allow, config=config, rdma=rdma, pin_limit=options.pin_limit
        )
        self.server.change(config)
        self._set_store_speed(config)
        for tcp in self.tcp:
            tcp.allow = tuple(options.allow)
        for server in self.rdma:
            server.allow = tuple(options.allow)
            server.options = rdma

    def cut(self, connection: int) -> None:
        """Cuts a connection, over RDMA or TCP; its sessions may go on with another one.

        Raises LivedmaError if there is none with that number.
        """
        if any(tcp.cut(connection) for tcp in self.tcp):
            return
        for rdma in self.rdma:
            for one in rdma.connections:
                if one.number == connection and one.endpoint is not None:
                    one.close()
                    return
        raise LivedmaError(f"there is no connection {connection}")

    def connection(self, number: int) -> Connection | None:
        """Returns an open connection, over RDMA or TCP; None: there is none with that number."""
        there: list[Connection] = [one for rdma in self.rdma for one in rdma.connections]
        there += [one for tcp in self.tcp for one in tcp.open_connections()]
        return next((one for one in there if one.number == number), None)

    def close(self) -> None:
        """Cuts all connections and ends; state that a restart needs stays."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lacks_memory(connection: Connection) -> bool:
    return isinstance(connection, RdmaConnection) and connection.is_least
