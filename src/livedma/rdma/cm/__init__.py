# SPDX-License-Identifier: BSD-2-Clause
"""Connects by address and port, as librdmacm does, blocking and with asyncio.

    with cm.connect(device, "10.0.0.2", 7174) as connection:
        connection.qp.post_send(1, "SEND", inline=b"hello")

    for request in cm.listen(device, 7174):
        connection = request.accept()

A device has one connection manager, which starts when it is first used.
"""

from livedma.errors import PortInUseError
from livedma.rdma.cm.calls import Listener, Request, connect, connect_async, listen
from livedma.rdma.cm.connection import ConnectionStateError, TableFullError
from livedma.rdma.cm.datagrams import Announcement, Service, announce, resolve, resolve_async
from livedma.rdma.cm.link import (
    ConnectError,
    Connection,
    RejectedError,
    Setup,
    UnreachableError,
)
from livedma.rdma.cm.manager import manager
from livedma.rdma.cm.messages import Timing
from livedma.rdma.cm.outbox import Limits

__all__ = [
    "Announcement",
    "ConnectError",
    "Connection",
    "ConnectionStateError",
    "Limits",
    "Listener",
    "PortInUseError",
    "RejectedError",
    "Request",
    "Service",
    "Setup",
    "TableFullError",
    "Timing",
    "UnreachableError",
    "announce",
    "connect",
    "connect_async",
    "listen",
    "manager",
    "resolve",
    "resolve_async",
]
