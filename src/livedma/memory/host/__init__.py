# SPDX-License-Identifier: BSD-2-Clause
"""Facts about this host's memory for DMA tell what is pinned, locked, huge, in pieces or moved."""

from livedma.memory.host.advice import Advice, advise
from livedma.memory.host.files import Files
from livedma.memory.host.motion import Motion, MotionCounter
from livedma.memory.host.process import Process
from livedma.memory.host.snapshot import Snapshot, look
from livedma.memory.host.system import Host

__all__ = [
    "Advice",
    "Files",
    "Host",
    "Motion",
    "MotionCounter",
    "Process",
    "Snapshot",
    "advise",
    "look",
]
