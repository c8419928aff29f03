# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the interfaces at which RoCE may pass, and says which NICs keep theirs to themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from livedma.errors import LivedmaError
from livedma.rdma.rtnetlink import addresses, links

__all__ = ["chosen", "offloading"]

_SYS = Path("/sys/class")


def chosen(sys: Path = _SYS) -> list[str]:
    """Returns the interfaces that are up and have an address: RoCEv2 needs one. One that stands on
    another of them (a VLAN) is left out, since its packets pass both. Raises LivedmaError if there
    is none.
    """
    used = {one.index for one in addresses()}
    found = [one.name for one in links() if one.is_up and one.index in used]
    ret = [name for name in found if not _below(sys, name) & set(found)]
    if not ret:
        raise LivedmaError(
            "no interface is up and has an address: `ip link` and `ip address` show them"
        )
    return ret


def _below(sys: Path, name: str) -> set[str]:
    return {one.name.removeprefix("lower_") for one in (sys / "net" / name).glob("lower_*")}


def offloading(interfaces: list[str], sys: Path = _SYS) -> list[tuple[str, str]]:
    """Returns pairs of an RDMA device and its interface, of those that do RoCE in hardware."""
    return sorted(
        (device.name, interface)
        for device in (sys / "infiniband").glob("*")
        if not device.name.startswith("rxe")
        for interface in set(_interfaces_of(device))
        if interface in interfaces
    )


def _interfaces_of(device: Path) -> Iterator[str]:
    for entry in device.glob("ports/*/gid_attrs/ndevs/*"):
        try:
            yield entry.read_text().strip()
        except OSError:  # the entry is not in use
            continue
