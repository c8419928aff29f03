"""A whole server: the export and its state, the transports that lead to it, the control socket."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from livedma._native.accelerator import Accelerator
from livedma.errors import LivedmaError
from livedma.nfs.config import Config
from livedma.nfs.control import ControlServer
from livedma.nfs.guidance import Guidance
from livedma.nfs.guided_program import GuidedProgram
from livedma.nfs.levers import Levers
from livedma.nfs.persist import Persist, default_directory
from livedma.nfs.program import NfsProgram
from livedma.nfs.server import Server
from livedma.nfs.store import Store
from livedma.rdma import Device
from livedma.rdma.interface import addresses
from livedma.rpc.rdma_server import Options as RdmaOptions
from livedma.rpc.rdma_server import RdmaServer
from livedma.rpc.service import Network
from livedma.rpc.tcp_server import TcpServer

__all__ = ["NfsService", "Wishes"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """Where and how a server serves.

    addresses: none means all of this host. tcp_port, rdma_port: None means not at all.
    state: a directory outside of the export, or the default. control: a path for its socket, or
    none.
    """

    addresses: Sequence[str] = ()
    tcp_port: int | None = 2049
    rdma_port: int | None = 20049
    allow: Sequence[Network] = ()
    threads: int = 8
    state: Path | None = None
    control: Path | None = None
    config: Config = field(default_factory=Config)
    rdma: RdmaOptions = field(default_factory=RdmaOptions)


class NfsService:
    """Serves from when it is made until it is closed. A context manager."""

    def __init__(self, directory: Path, wishes: Wishes | None = None) -> None:
        self.directory = directory
        self.wishes = wishes = wishes or Wishes()
        self.started_s = time.time()
        self.tcp: list[TcpServer] = []
        self.rdma: list[RdmaServer] = []
        self.control: ControlServer | None = None
        with ExitStack() as stack:
            self.server = self._make_server(stack)
            self.guidance = Guidance(self)
            self._program = GuidedProgram(NfsProgram(self.server), self.guidance)
            self.server.start()
            stack.callback(self.server.stop)
            if wishes.tcp_port is not None:
                for address in wishes.addresses or [""]:
                    self.tcp.append(stack.enter_context(self._listen_tcp(address)))
            if wishes.rdma_port is not None:
                for address in wishes.addresses or addresses():
                    self.rdma.append(self._listen_rdma(stack, address))
            if wishes.control is not None:
                self.control = ControlServer(wishes.control, Levers(self).methods())
                stack.callback(self.control.close)
            self._stack = stack.pop_all()

    def _make_server(self, stack: ExitStack) -> Server:
        if not self.directory.is_dir():
            raise LivedmaError(f"{self.directory} is no directory")
        state = self.wishes.state or default_directory(self.directory)
        if state.resolve().is_relative_to(self.directory.resolve()):
            raise LivedmaError(f"{state} would be exported, and it is secret; take another --state")
        config = self.wishes.config
        persist = stack.enter_context(Persist(state))
        store = Store(self.directory, secret=persist.secret("handles"), config=config)
        stack.callback(store.close)
        self.accelerator = Accelerator(
            store.changes, store.write_verifier, threads=self.wishes.threads
        )
        stack.callback(self.accelerator.close)
        self._set_store_speed(config)
        return Server(store, persist, config, accelerator=self.accelerator)

    def _listen_tcp(self, address: str) -> TcpServer:
        wishes = self.wishes
        return TcpServer(
            self._program,
            address,
            wishes.tcp_port or 0,
            allow=wishes.allow,
            threads=wishes.threads,
        )

    def _listen_rdma(self, stack: ExitStack, address: str) -> RdmaServer:
        wishes = self.wishes
        device = stack.enter_context(Device(address))
        rdma = stack.enter_context(
            RdmaServer(
                device, wishes.rdma_port or 0, self._program, wishes.rdma, allow=wishes.allow
            )
        )
        rdma.set_native_program(self.accelerator.capsule)
        rdma.expect = self.guidance.expect
        return rdma

    def _set_store_speed(self, config: Config) -> None:
        self.accelerator.store_delay_s = config.store_delay_s
        self.accelerator.store_width = config.store_width

    def change(self, wishes: Wishes) -> None:
        """What can change while it serves: who may connect, what a new connection and a new session
        get, as whom calls act, how the store behaves. All else in `wishes` is left as it is.
        """
        now = self.wishes
        given = wishes.config
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
            window_bytes=wishes.rdma.window_bytes,
            mapped_bytes=wishes.rdma.mapped_bytes,
            buffer_bytes=wishes.rdma.buffer_bytes,
            credits=wishes.rdma.credits,
        )
        self.wishes = replace(now, allow=wishes.allow, config=config, rdma=rdma)
        self.server.change(config)
        self._set_store_speed(config)
        for tcp in self.tcp:
            tcp.allow = tuple(wishes.allow)
        for server in self.rdma:
            server.allow = tuple(wishes.allow)
            server.options = rdma

    def close(self) -> None:
        """Cuts all connections and ends; state that a restart needs stays."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
