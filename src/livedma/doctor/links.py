"""Interfaces that are up: how they are made, what they can, which programs are on them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyroute2 import Ethtool, IPRoute

from livedma.doctor.programs import Program, of_link
from livedma.errors import LivedmaError
from livedma.memory.host.text import printable
from livedma.rdma.interface import Interface

__all__ = ["At", "Feature", "Link", "look_up"]


@dataclass(frozen=True)
class Feature:
    is_on: bool
    can_change: bool


@dataclass(frozen=True)
class Link:
    interface: Interface
    kind: str
    features: dict[str, Feature]  #: as ethtool names them; empty: unknown
    programs: Sequence[Program]
    sees_all_programs: bool
    peer: str  #: the other end of a veth pair, empty if that is in another namespace

    @property
    def name(self) -> str:
        return self.interface.name


@dataclass(frozen=True)
class At:
    """An address and where it is."""

    address: str
    link: Link


def look_up(only: str = "") -> tuple[list[Link], list[At]]:
    """Interfaces that are up and addresses there at which a server listens without a wish, that is,
    not the link-local ones; or those of one interface, by its name, or one address.
    """
    with IPRoute() as route:
        entries = list(route.get_links())
        names = {entry["index"]: entry.get_attr("IFLA_IFNAME") for entry in entries}
        places = [
            (entry["index"], entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"))
            for entry in route.get_addr()
        ]
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
            entry["index"]: _link(entry, names, route)
            for entry in entries
            if entry["state"] == "up" and entry["index"] in used
        }
    found = [At(address, links[index]) for index, address in places if index in links]
    return list(links.values()), found


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address).is_link_local


def _link(entry: Any, names: dict[int, str], route: IPRoute) -> Link:
    name, info = entry.get_attr("IFLA_IFNAME"), entry.get_attr("IFLA_LINKINFO")
    programs, sees_all = of_link(entry, route)
    return Link(
        Interface(entry["index"], name, entry.get_attr("IFLA_MTU")),
        (info and info.get_attr("IFLA_INFO_KIND")) or "",
        _features(name),
        programs,
        sees_all,
        _peer(entry, names),
    )


def _peer(entry: Any, names: dict[int, str]) -> str:
    index = entry.get_attr("IFLA_LINK")
    return names.get(index, "") if entry.get_attr("IFLA_LINK_NETNSID") is None else ""


def _features(name: str) -> dict[str, Feature]:
    try:
        with Ethtool() as ethtool:
            found = ethtool.get_features(name).features
            return {
                each.name: Feature(bool(each.enable), bool(each.available))
                for each in found.values()
            }
    except Exception:  # whatever pyroute2 raises where the kernel has no such interface
        return {}
