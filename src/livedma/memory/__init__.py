"""DMA memory: what a device may reach, where it comes from and what it costs the host."""

from livedma.memory.accounting import Budget, budget, tenant
from livedma.memory.pinning import Pin, pin

__all__ = ["Budget", "Pin", "budget", "pin", "tenant"]
