# SPDX-License-Identifier: BSD-2-Clause
"""Finds the NUMA node that is nearest to a network interface."""

from __future__ import annotations

from pathlib import Path

_SYS = Path("/sys")
NODES = _SYS / "devices/system/node"  #: where the system lists them


def has_node(node: int) -> bool:
    """Returns whether the machine has this node; one without NUMA has node 0."""
    return (NODES / f"node{node}").is_dir() or (node == 0 and not NODES.is_dir())


def node_of(interface: str, sys: Path = _SYS) -> int | None:
    """Returns the interface's node; None: the machine has only one node, or the interface has none.

    An interface on top of others (bonds, VLANs, bridges) has their node, if they agree.
    """
    if not _has_several_nodes(sys):
        return None
    nodes = _nodes(sys / "class" / "net" / interface, seen=set())
    return nodes.pop() if len(nodes) == 1 else None


def _has_several_nodes(sys: Path) -> bool:
    try:
        online = (sys / "devices/system/node/online").read_text().strip()
    except OSError:
        return False
    return not online.isdigit()  # else a list such as 0-1 or 0,2


def _nodes(interface: Path, seen: set[str]) -> set[int]:
    seen.add(interface.name)
    try:
        node = int((interface / "device/numa_node").read_text())
        return {node} if node >= 0 else set()
    except (OSError, ValueError):
        lower = {link.name.removeprefix("lower_") for link in interface.glob("lower_*")} - seen
        return set().union(*(_nodes(interface.parent / name, seen) for name in lower))
