# SPDX-License-Identifier: BSD-2-Clause
"""Reads the interfaces that are up: their kinds, their features, and the programs on them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from livedma.doctor.features import Feature, features
from livedma.doctor.netlink import Entry, entries
from livedma.doctor.programs import Program, of_link
from livedma.errors import LivedmaError
from livedma.memory.host.text import printable
from livedma.rdma.interface import Interface
from livedma.rdma.rtnetlink import addresses

__all__ = ["At", "Feature", "Link", "look_up"]


@dataclass(frozen=True)
class Link:
    interface: Interface
    kind: str
    features: dict[str, Feature]  #: by ethtool's names; empty: unknown
    programs: Sequence[Program]
    sees_all_programs: bool
    peer: str  #: the other end of a veth pair; empty if that is in another namespace

    @property
    def name(self) -> str:
        return self.interface.name


@dataclass(frozen=True)
class At:
    """Names an address and its interface."""

    address: str
    link: Link


def look_up(only: str = "") -> tuple[list[Link], list[At]]:
    """Returns interfaces that are up, and their addresses at which a server listens by default,
    that is, not the link-local ones; or those of one interface, by its name, or one address.
    """
    told = entries()
    names = {entry.index: entry.name for entry in told}
    places = [(one.index, str(one.own.ip)) for one in addresses()]
    places = [place for place in places if only == place[1] or not _is_link_local(place[1])]
    if only:
        places = [place for place in places if only in (place[1], names.get(place[0]))]
        if not places:
            raise LivedmaError(
                f"{printable(only)} is neither an address of this host nor an interface that "
                "has one: see `ip address`"
            )
    used = {index for index, _ in places}
    links = {
        entry.index: _link(entry, names) for entry in told if entry.is_up and entry.index in used
    }
    found = [At(address, links[index]) for index, address in places if index in links]
    return list(links.values()), found


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address).is_link_local


def _link(entry: Entry, names: dict[int, str]) -> Link:
    programs, sees_all = of_link(entry)
    return Link(
        Interface(entry.index, entry.name, entry.mtu),
        entry.kind,
        features(entry.name),
        programs,
        sees_all,
        _peer(entry, names),
    )


def _peer(entry: Entry, names: dict[int, str]) -> str:
    if entry.below is None or entry.is_below_elsewhere:
        return ""
    return names.get(entry.below, "")
