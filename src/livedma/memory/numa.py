"""Which node's memory is nearest to a network interface."""

from __future__ import annotations

from pathlib import Path

_SYS = Path("/sys")


def node_of(interface: str, sys: Path = _SYS) -> int | None:
    """The interface's node; None if the machine has one only, or the interface is nowhere.

    What stands on others (bonds, VLANs, bridges) is where they are, if they agree.
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
