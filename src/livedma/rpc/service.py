"""What a transport and the program that it serves know of each other."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

__all__ = [
    "CallingConnection",
    "Connection",
    "CountingConnection",
    "Data",
    "Network",
    "Part",
    "Program",
    "is_allowed",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_allowed(peer: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of them; without any, everybody is allowed."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    return not networks or any(address in network for network in networks)


@dataclass(frozen=True, slots=True)
class Data:
    """Opaque data within a reply that may be placed directly into the caller's memory.

    It stands for the bytes and their padding to a multiple of four; its length word is not part of
    it. A reply has at most one.
    """

    data: bytes | bytearray | memoryview


Part = bytes | Data


class Connection(Protocol):
    """A peer, as long as it is connected. Identity is what tells connections apart."""

    @property
    def number(self) -> int:
        """Unique in the process."""

    @property
    def kind(self) -> Literal["tcp", "rdma"]: ...

    @property
    def peer(self) -> str:
        """The address it comes from, without port."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None:
        """Cuts it; any thread may."""


@runtime_checkable
class CallingConnection(Connection, Protocol):
    """One by which the peer can be called, too. Its replies come as messages do: to the program."""

    def call(self, message: bytes) -> bool:
        """Sends a whole RPC call, without waiting. False: the peer cannot be reached by this."""


@runtime_checkable
class CountingConnection(Connection, Protocol):
    """One that keeps account of what calls by it have moved."""

    def moved(self, read_bytes: int, written_bytes: int) -> None:
        """A call that is being answered has read or written so much of files."""


class Program(Protocol):
    """Serves calls, each in a thread that may block."""

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        """The reply to a whole RPC message; None: it has none, as with a reply of the peer's."""

    def closed(self, connection: Connection) -> None:
        """The connection is no more; no call of it comes after this one."""
