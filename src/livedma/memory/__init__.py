# SPDX-License-Identifier: BSD-2-Clause
"""Manages DMA memory: what a device may reach, where it comes from and what it costs the host."""

from livedma.memory.accounting import Budget, budget, tenant
from livedma.memory.backing import Anonymous, Backing, Block, File, Huge
from livedma.memory.lease import Lease, Source
from livedma.memory.paging import MemoryEvents, OnDemand
from livedma.memory.parts import Part, Statistics
from livedma.memory.pinning import Pin, pin
from livedma.memory.pool import Buffer, Pool, PoolClosed
from livedma.memory.pool_events import PoolEvents
from livedma.memory.registrar import Registrar
from livedma.memory.window import Mapper, Window

__all__ = [
    "Anonymous",
    "Backing",
    "Block",
    "Budget",
    "Buffer",
    "File",
    "Huge",
    "Lease",
    "Mapper",
    "MemoryEvents",
    "OnDemand",
    "Part",
    "Pin",
    "Pool",
    "PoolClosed",
    "PoolEvents",
    "Registrar",
    "Source",
    "Statistics",
    "Window",
    "budget",
    "pin",
    "tenant",
]
