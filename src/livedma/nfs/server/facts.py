# SPDX-License-Identifier: BSD-2-Clause
"""Offers the methods of a server's control socket that change nothing.

Methods that change something come with a controller (`livedma.control.methods`), which keeps to the
budget and tells each change as an event.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livedma._native.accelerator import KINDS
from livedma.errors import LivedmaError
from livedma.rpc.rdma_server import RdmaConnection

if TYPE_CHECKING:
    from livedma.nfs.server.service import NfsService
    from livedma.nfs.server.state.sessions import Session

__all__ = ["Facts"]


_TIMES = ("latency", "buffer_waits", "send_waits", "storage", "storage_queue")


class Facts:
    """Answers each method with what JSON can say."""

    def __init__(self, service: NfsService) -> None:
        self._service = service

    def methods(self) -> dict[str, Callable[..., object]]:
        """Returns the methods by their names on the socket."""
        offered = (
            self.server,
            self.clients,
            self.sessions,
            self.connections,
            self.counters,
            self.waits,
            self.guidance,
        )
        return {method.__name__: method for method in offered}

    def server(self) -> dict[str, Any]:
        """Says what the server exports, where, and since when."""
        service = self._service
        return {
            "export": str(service.directory),
            "started": service.started_s,
            "tcp": [tcp.port for tcp in service.tcp],
            "rdma": [f"{rdma.device.address} {rdma.port}" for rdma in service.rdma],
            "boot": service.server.recovery.boot,
            "grace": service.server.recovery.in_grace(service.server.clock()),
            "lease_s": service.server.config.lease_s,
            "acts_as_clients": service.server.store.actor.is_privileged,
            "handles_survive": service.server.store.is_persistent,
            "ports": {rdma.device.address: rdma.device.port_kind for rdma in service.rdma},
        }

    def clients(self) -> list[dict[str, Any]]:
        """Lists the clients with a client id, their addresses and the state of their leases."""
        with self._service.server.lock:
            facts = self._service.server.clients.facts()
        return [
            {**dataclasses.asdict(one), "owner": one.owner.decode(errors="backslashreplace")}
            for one in facts
        ]

    def sessions(self) -> list[dict[str, Any]]:
        """Returns the sessions with their slots, connections and counts."""
        with self._service.server.lock:
            facts = [one.facts() for one in self._service.server.sessions.all()]
        return [{**dataclasses.asdict(one), "id": one.id.hex()} for one in facts]

    def connections(self) -> list[dict[str, Any]]:
        """Returns the connections; those over RDMA with memory and credits. Waits are in a summary;
        all of them: `waits`."""
        tcp = [
            {"kind": "tcp", **dataclasses.asdict(one)}
            for server in self._service.tcp
            for one in server.connections()
        ]
        rdma = []
        for connection in self._rdma():
            with contextlib.suppress(ValueError):  # it ends just now, and its pools are closed
                rdma.append(_facts(connection))
        return rdma + tcp

    def counters(self) -> dict[str, Any]:
        """Says what was served without Python, and why the rest was left; storage times by
        operation; what became of delegations."""
        accelerator = self._service.accelerator
        return {
            "accelerator": accelerator.counters,
            **{kind: accelerator.served(kind) for kind in KINDS},
            "storage": {kind: _histogram(accelerator.storage_times(kind)) for kind in KINDS},
            "delegations": dict(self._service.server.delegations.counters),
            "strange_replies": self._service.server.callbacks.strangers,
        }

    def waits(self, connection: int) -> dict[str, Any]:
        """Says how long calls of a connection took, waited for data buffers and for the send queue,
        and were in the store, and of that until it began with them."""
        statistics = self._connection(connection).statistics()
        return {name: _histogram(statistics[name]) for name in _TIMES}

    def guidance(self, connection: int) -> dict[str, Any]:
        """Says whether a connection's client asks what is wanted of it, and what became of the last
        instruction."""
        guidance = self._service.guidance
        state = guidance.state(connection)
        return {
            "follows": guidance.follows(connection),
            "state": None if state is None else state.as_json(),
        }

    def _rdma(self) -> list[RdmaConnection]:
        return [
            connection
            for server in self._service.rdma
            for connection in server.connections
            if connection.endpoint is not None
        ]

    def _connection(self, number: int) -> RdmaConnection:
        for connection in self._rdma():
            if connection.number == number:
                return connection
        raise LivedmaError(f"there is no connection {number} over RDMA")

    def _session(self, number: str) -> Session:
        for session in self._service.server.sessions.all():
            if session.id.hex() == number:
                return session
        raise LivedmaError(f"there is no session {number}")


def _facts(connection: RdmaConnection) -> dict[str, Any]:
    memory, statistics = connection.memory, connection.statistics()
    times = {name: _summary(statistics.pop(name)) for name in _TIMES}
    pool = memory.data_pool.stats
    server_qpn, client_qpn = connection.qpns
    return {
        "kind": connection.kind,
        "number": connection.number,
        "peer": connection.peer,
        "server": connection.server,
        "server_qpn": server_qpn,
        "client_qpn": client_qpn,
        "window": memory.window.size,
        "mapped": memory.window.linked,
        "pinned": memory.window.pinned,
        "first_bytes": memory.first_bytes,
        "room": memory.room,
        "buffer_bytes": memory.data_pool.buffer_size,
        "buffers": pool.buffers - memory.reserve,
        "reserve": memory.reserve,
        "buffers_wanted": memory.buffers,
        "buffers_taken": pool.taken,
        "buffers_waited_for": pool.waiting,
        "credits_asked": statistics.pop("asked"),
        "credits_max": connection.credits_max,
        **statistics,
        **times,
    }


def _summary(waits: tuple[int, int, int, Any]) -> dict[str, int]:
    count, sum_ns, max_ns, _ = waits
    return {"count": count, "sum_ns": sum_ns, "max_ns": max_ns}


def _histogram(waits: tuple[int, int, int, Any]) -> dict[str, Any]:
    return {**_summary(waits), "buckets": [list(bucket) for bucket in waits[3]]}
