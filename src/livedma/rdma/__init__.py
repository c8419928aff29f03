# SPDX-License-Identifier: BSD-2-Clause
"""Brings RDMA in user space: a RoCEv2 device on any interface, with the verbs' objects and no
privilege.

Several threads may use every object, blocking (`cq.wait()`) or with asyncio (`await
cq.wait_async()`). An object that closes also closes what was made on it. `livedma.rdma.cm` makes
connections.
"""

from livedma._native.rdma import Completion, SharedReceives, WorkRequest
from livedma.rdma.device import Device
from livedma.rdma.memory import MemoryRegion, OnDemandRegion, ProtectionDomain
from livedma.rdma.names import (
    Access,
    Completed,
    CompletionStatus,
    MemoryMode,
    Operation,
    PortKind,
    QueuePairState,
    QueuePairType,
)
from livedma.rdma.queues import CompletionQueue, QueuePair

__all__ = [
    "Access",
    "Completed",
    "Completion",
    "CompletionQueue",
    "CompletionStatus",
    "Device",
    "MemoryMode",
    "MemoryRegion",
    "OnDemandRegion",
    "Operation",
    "PortKind",
    "ProtectionDomain",
    "QueuePair",
    "QueuePairState",
    "QueuePairType",
    "SharedReceives",
    "WorkRequest",
]
