"""What can be seen of a running server, and changed: the methods of its control socket."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livedma._native.accelerator import KINDS
from livedma.errors import LivedmaError
from livedma.rpc.rdma_server import RdmaConnection

if TYPE_CHECKING:
    from livedma.nfs.service import NfsService
    from livedma.nfs.sessions import Session

__all__ = ["Levers"]


_TIMES = ("latency", "buffer_waits", "send_waits", "storage", "storage_queue")


class Levers:
    """Each method answers with what JSON can say."""

    def __init__(self, service: NfsService) -> None:
        self._service = service

    def methods(self) -> dict[str, Callable[..., object]]:
        """By their names on the socket."""
        offered = (
            self.server,
            self.clients,
            self.sessions,
            self.connections,
            self.counters,
            self.waits,
            self.set_credits,
            self.set_slots,
            self.extend,
            self.shrink,
            self.refuse_sessions,
            self.spread,
            self.migrate,
            self.guidance,
            self.cut,
        )
        return {method.__name__: method for method in offered}

    def server(self) -> dict[str, Any]:
        """What it serves, where, and since when."""
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
        """Who has a client id, from where, and how it stands with its lease."""
        with self._service.server.lock:
            facts = self._service.server.clients.facts()
        return [
            {**dataclasses.asdict(one), "owner": one.owner.decode(errors="backslashreplace")}
            for one in facts
        ]

    def sessions(self) -> list[dict[str, Any]]:
        """Their slots, connections and counts."""
        with self._service.server.lock:
            facts = [one.facts() for one in self._service.server.sessions.all()]
        return [{**dataclasses.asdict(one), "id": one.id.hex()} for one in facts]

    def connections(self) -> list[dict[str, Any]]:
        """Of RDMA: memory and credits, too. Waits are in a summary; all of them: `waits`."""
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
        """What was served without Python, and why the rest was left; storage times by operation;
        what became of delegations.
        """
        accelerator = self._service.accelerator
        return {
            "accelerator": accelerator.counters,
            **{kind: accelerator.served(kind) for kind in KINDS},
            "storage": {kind: _histogram(accelerator.storage_times(kind)) for kind in KINDS},
            "delegations": dict(self._service.server.delegations.counters),
            "strange_replies": self._service.server.callbacks.strangers,
        }

    def waits(self, connection: int) -> dict[str, Any]:
        """How long calls of a connection took, waited for data buffers and for the send queue, and
        were in the store, and of that until it began with them.
        """
        statistics = self._connection(connection).statistics()
        return {name: _histogram(statistics[name]) for name in _TIMES}

    def set_credits(self, connection: int, credits: int) -> dict[str, Any]:  # noqa: A002
        """How many calls the connection's peer may have under way; it follows its next replies."""
        found = self._connection(connection)
        found.credits = credits
        return _facts(found)

    def set_slots(self, session: str, slots: int) -> dict[str, Any]:
        """How many requests of a session may be under way; its client follows its next replies."""
        most = self._service.server.config.slots_most
        if not isinstance(slots, int) or not 1 <= slots <= most:
            raise ValueError(f"a session has 1 to {most} slots")
        found = self._session(session)
        found.set_slots(slots)
        return {"id": session, "slots_target": found.slots.target, "slots": found.slots.size}

    def extend(self, connection: int, bytes: int) -> dict[str, Any]:  # noqa: A002
        """Maps more DMA memory into a connection's window."""
        found = self._connection(connection)
        found.memory.extend(_positive(bytes))
        return _facts(found)

    def shrink(self, connection: int, bytes: int) -> dict[str, Any]:  # noqa: A002
        """Takes DMA memory out of a connection's window, as it becomes free."""
        found = self._connection(connection)
        found.memory.shrink(_positive(bytes))
        return _facts(found)

    def refuse_sessions(self, refuse: bool) -> dict[str, bool]:
        """Whether new sessions are refused (NFS4ERR_NOSPC): their memory cannot be had."""
        if not isinstance(refuse, bool):
            raise ValueError("refuse is true or false")
        self._service.server.sessions.refuse = lambda: refuse
        return {"refuse": refuse}

    def spread(self, connection: int) -> dict[str, Any]:
        """Asks a connection's client to open another one, for new sessions."""
        self._service.guidance.spread(connection)
        return self.guidance(connection)

    def migrate(self, connection: int, bytes: int, credits: int) -> dict[str, Any]:  # noqa: A002
        """Asks it to move all sessions to another one, with so much memory and so many credits."""
        guidance = self._service.guidance
        guidance.migrate(connection, mapped_bytes=_positive(bytes), credits=_positive(credits))
        return self.guidance(connection)

    def guidance(self, connection: int) -> dict[str, Any]:
        """Whether a connection's client asks what is wanted of it, and what became of the last
        wish.
        """
        guidance = self._service.guidance
        state = guidance.state(connection)
        return {
            "follows": guidance.follows(connection),
            "state": None if state is None else state.as_json(),
        }

    def cut(self, connection: int) -> None:
        """Ends a connection; its sessions may go on by another one."""
        for server in self._service.tcp:
            if server.cut(connection):
                return
        self._connection(connection).close()

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


def _positive(value: int) -> int:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"{value!r} is no positive number")
    return value


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
        "first_bytes": memory.first_bytes,
        "room": memory.room,
        "buffer_bytes": memory.data_pool.buffer_size,
        "buffers": pool.buffers,
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
