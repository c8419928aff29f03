# SPDX-License-Identifier: BSD-2-Clause
"""Takes the ramp's situation, and others in which something else than memory is short."""

from __future__ import annotations

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment.situation import Situation

__all__ = ["BESIDE", "MEMORY"]

#: 4 MiB mapped are 56 data buffers, each taken for 20 ms: 2,800 operations a second at most.
MEMORY = Situation(Limit.MEMORY)

BESIDE = {
    "CPU": Situation(Limit.CPU, sessions=16, size_bytes=4096, store_delay_s=0.0, is_verified=False),
    # Buffers run out as well, while their requests wait in the store's queue.
    "storage": Situation(Limit.STORAGE, sessions=32, store_delay_s=0.002, store_width=4),
    "credits": Situation(Limit.CREDITS, sessions=16, credits=16),
    "slots": Situation(Limit.SLOTS, sessions=4, depth=8, slots=2),
    "network": Situation(
        Limit.NETWORK, sessions=8, size_bytes=16 << 10, store_delay_s=0.002, lost_share=0.01
    ),
}
