"""Brings all modules of operations in: each registers its own when it is imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from livedma.nfs import ops

__all__ = ["load"]


def load() -> None:
    """From now on `registry.OPERATIONS` has them all."""
    for module in pkgutil.iter_modules(ops.__path__):
        import_module(f"{ops.__name__}.{module.name}")
