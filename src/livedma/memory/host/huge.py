# SPDX-License-Identifier: BSD-2-Clause
"""Reads the state of huge pages: pools of reserved ones (hugetlb), and transparent ones (THP)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from livedma.memory.host.files import Files
from livedma.memory.host.text import chosen

__all__ = ["HugePool", "Transparent", "pools", "transparent"]

_POOLS = "sys/kernel/mm/hugepages"
_NODES = "sys/devices/system/node"
_THP = "sys/kernel/mm/transparent_hugepage"
_DIRECTORY = re.compile(r"hugepages-(\d{1,12})kB", re.ASCII)
_NODE = re.compile(r"node(\d{1,6})", re.ASCII)


@dataclass(frozen=True)
class HugePool:
    size: int  #: of a page, in bytes
    node: int | None  #: None: of all nodes
    total: int
    free: int
    reserved: int | None  #: promised to mappings, but not touched yet; not counted by node
    surplus: int  #: beyond `nr_hugepages`, by overcommit; they go back when free

    @property
    def available(self) -> int:
        """Pages that a new mapping can have."""
        return max(0, self.free - (self.reserved or 0))


@dataclass(frozen=True)
class Transparent:
    enabled: str  #: always, madvise or never
    defrag: str | None  #: what a fault may do to get one
    page_size: int | None


def pools(files: Files) -> list[HugePool]:
    """Returns the host's pools, each followed by its part on each node if there are several."""
    nodes = sorted(_numbers(_NODE, files.names(_NODES)).items())
    found = []
    for size_kib, name in sorted(_numbers(_DIRECTORY, files.names(_POOLS)).items()):
        size = size_kib << 10
        found.append(_pool(files, f"{_POOLS}/{name}", size, None))
        if len(nodes) > 1:
            places = [(node, f"{_NODES}/{which}/hugepages/{name}") for node, which in nodes]
            found += [_pool(files, path, size, node) for node, path in places]
    return found


def _numbers(pattern: re.Pattern[str], names: list[str]) -> dict[int, str]:
    return {int(found[1]): name for name in names if (found := pattern.fullmatch(name))}


def _pool(files: Files, path: str, size: int, node: int | None) -> HugePool:
    return HugePool(
        size=size,
        node=node,
        total=files.number(f"{path}/nr_hugepages") or 0,
        free=files.number(f"{path}/free_hugepages") or 0,
        reserved=files.number(f"{path}/resv_hugepages"),
        surplus=files.number(f"{path}/surplus_hugepages") or 0,
    )


def transparent(files: Files) -> Transparent | None:
    """Returns the settings for transparent huge pages. None: the kernel has none."""
    enabled = chosen(files.text(f"{_THP}/enabled"))
    if enabled is None:
        return None
    defrag = chosen(files.text(f"{_THP}/defrag"))
    return Transparent(enabled, defrag, files.number(f"{_THP}/hpage_pmd_size"))
