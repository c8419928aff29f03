# SPDX-License-Identifier: BSD-2-Clause
"""Manages DMA memory: what a device may reach, where it comes from and what it costs the host."""

from livedma.memory.accounting import Budget, budget, tenant
from livedma.memory.backing import Anonymous, Auto, Backing, Block, File, Huge
from livedma.memory.lease import Lease, Source
from livedma.memory.mapper import Mapper
from livedma.memory.paging import MemoryEvents, OnDemand
from livedma.memory.parts import Part, Statistics
from livedma.memory.pinning import Pin, pin
from livedma.memory.pool import Buffer, Pool, PoolClosed
from livedma.memory.pool_events import PoolEvents
from livedma.memory.registrar import Registrar
from livedma.memory.window import Window
from livedma.memory.window_pins import WindowPins

__all__ = [
    "Anonymous",
    "Auto",
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
    "WindowPins",
    "budget",
    "pin",
    "tenant",
]
