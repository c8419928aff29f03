"""DMA memory: what a device may reach, where it comes from and what it costs the host."""

from livedma.memory.backing import Anonymous, Backing, Block, File, Huge
from livedma.memory.lease import Lease, Source
from livedma.memory.parts import Part, Statistics
from livedma.memory.registrar import Registrar
from livedma.memory.window import Mapper, Window

__all__ = [
    "Anonymous",
    "Backing",
    "Block",
    "File",
    "Huge",
    "Lease",
    "Mapper",
    "Part",
    "Registrar",
    "Source",
    "Statistics",
    "Window",
]
