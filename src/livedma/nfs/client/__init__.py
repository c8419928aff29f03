# SPDX-License-Identifier: BSD-2-Clause
"""Offers the client: `Client.connect`, its sessions and files, and what they raise."""

from livedma.nfs.client.client import Client
from livedma.nfs.client.errors import (
    BadReply,
    Conflict,
    OperationFailed,
    OutcomeUnknown,
    StateLost,
    WritesLost,
)
from livedma.nfs.client.file import File
from livedma.nfs.client.hand_over import HandedOver
from livedma.nfs.client.session import Session

__all__ = [
    "BadReply",
    "Client",
    "Conflict",
    "File",
    "HandedOver",
    "OperationFailed",
    "OutcomeUnknown",
    "Session",
    "StateLost",
    "WritesLost",
]
