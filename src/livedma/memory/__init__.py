"""Memory for DMA: what is kept in its place, who is charged for it, and what limits it."""

from livedma.memory.accounting import Budget, budget, tenant
from livedma.memory.pinning import Pin, pin

__all__ = ["Budget", "Pin", "budget", "pin", "tenant"]
