# SPDX-License-Identifier: BSD-2-Clause
"""Imports all modules of operations; each registers its own."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from livedma.nfs.server import ops

__all__ = ["load"]


def load() -> None:
    """Fills `registry.OPERATIONS`."""
    for module in pkgutil.iter_modules(ops.__path__):
        import_module(f"{ops.__name__}.{module.name}")
