# SPDX-License-Identifier: BSD-2-Clause
"""Defines the interface between a transport and the program that it serves."""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from livedma.rpc.names import TransportKind

__all__ = [
    "CallingConnection",
    "Connection",
    "Data",
    "Network",
    "Part",
    "Program",
    "connection_numbers",
    "is_allowed",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Connections of all transports are counted together: people name one by its number.
connection_numbers = itertools.count(1)


def is_allowed(peer: str, networks: Sequence[Network]) -> bool:
    """Tells whether an address is in one of the networks; without any, all are allowed."""
    address = ipaddress.ip_address(peer.partition("%")[0])
    return not networks or any(address in network for network in networks)


@dataclass(frozen=True, slots=True)
class Data:
    """Holds opaque data of a reply that may be placed directly into the caller's memory.

    It stands for the bytes and their padding to a multiple of four; its length word is not part of
    it. A reply has at most one.
    """

    data: bytes | bytearray | memoryview


Part = bytes | Data


class Connection(Protocol):
    """Represents a peer, as long as it is connected. Connections are compared by identity."""

    @property
    def number(self) -> int:
        """Is a number that no other connection of the process has."""

    @property
    def kind(self) -> TransportKind: ...

    @property
    def peer(self) -> str:
        """Is the address that the peer comes from, without port."""

    @property
    def is_open(self) -> bool: ...

    def close(self) -> None:
        """Cuts the connection; any thread may call this."""

    @property
    def moved(self) -> Callable[[int, int, int], None]:
        """Counts the bytes that a call which is being answered has read of files and written to
        them, and its ns in the store.
        """


@runtime_checkable
class CallingConnection(Connection, Protocol):
    """Represents a connection by which the server can call the peer, too. The program gets the
    replies."""

    def call(self, message: bytes) -> bool:
        """Sends a whole RPC call, without waiting. False: the peer cannot be reached here."""


class Program(Protocol):
    """Serves calls, each in a thread that may block."""

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        """Returns the reply to a whole RPC message; None: it gets none, as a reply of the peer."""

    def closed(self, connection: Connection) -> None:
        """Learns that the connection has ended: no call of it comes after this."""
