"""RDMA in user space: a RoCEv2 device on any interface, with the verbs' objects and no privilege.

Everything may be used by several threads, blocking (`cq.wait()`) or with asyncio (`await
cq.completions()`), and closes what was made on it. `livedma.rdma.cm` makes connections.
"""

from livedma._native.rdma import Completion, SharedReceives, WorkRequest
from livedma.rdma.device import Device
from livedma.rdma.memory import MemoryRegion, OnDemandRegion, ProtectionDomain
from livedma.rdma.queues import CompletionQueue, QueuePair

__all__ = [
    "Completion",
    "CompletionQueue",
    "Device",
    "MemoryRegion",
    "OnDemandRegion",
    "ProtectionDomain",
    "QueuePair",
    "SharedReceives",
    "WorkRequest",
]
