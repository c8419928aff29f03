"""What a device at each of this host's addresses would have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyroute2 import Ethtool, IPRoute

from livedma.doctor.finding import Finding
from livedma.doctor.trial import Trial, ports, sharing
from livedma.doctor.udp_owner import ROCE_PORT, owner_of
from livedma.rdma.interface import HEADERS, Interface

__all__ = ["addresses"]

_LARGEST_MTU = 4096
_XDP_NATIVE = ("xdp", "xdpmulti")  # as pyroute2 calls the modes


@dataclass(frozen=True)
class _Link:
    interface: Interface
    kind: str
    has_native_xdp: bool
    can_segment: bool | None  #: None: unknown
    peer: str  #: how to name the other end of a veth pair


def addresses() -> list[Finding]:
    with IPRoute() as route:
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links()}
        links = {
            link["index"]: _link(link, names) for link in route.get_links() if link["state"] == "up"
        }
        found = [
            (entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"), links[entry["index"]])
            for entry in route.get_addr()
            if entry["index"] in links
        ]
    if not found:
        return [Finding("address", "stops", "no interface that is up has an address")]
    trials = [Trial.of(text, link.interface.index) for text, link in found]
    at_addresses = [_address(trial, link) for trial, (_, link) in zip(trials, found, strict=True)]
    at_links = [finding for link in links.values() for finding in _veth(link)]
    return [*ports(trials), *sharing(trials), *at_addresses, *at_links]


def _link(entry: Any, names: dict[int, str]) -> _Link:
    name = entry.get_attr("IFLA_IFNAME")
    info, xdp = entry.get_attr("IFLA_LINKINFO"), entry.get_attr("IFLA_XDP")
    return _Link(
        Interface(entry["index"], name, entry.get_attr("IFLA_MTU")),
        (info and info.get_attr("IFLA_INFO_KIND")) or "",
        bool(xdp) and xdp.get_attr("IFLA_XDP_ATTACHED") in _XDP_NATIVE,
        _can_segment(name),
        _peer(entry, names),
    )


def _peer(entry: Any, names: dict[int, str]) -> str:
    index = entry.get_attr("IFLA_LINK")
    if index in names and entry.get_attr("IFLA_LINK_NETNSID") is None:
        return names[index]
    return "PEER"


def _can_segment(name: str) -> bool | None:
    try:
        with Ethtool() as ethtool:
            return bool(ethtool.get_features(name).features["tx-udp-segmentation"].enable)
    except Exception:  # whatever pyroute2 raises where the kernel has no such interface
        return None


def _address(trial: Trial, link: _Link) -> Finding:
    interface = link.interface
    facts: dict[str, Any] = {
        "address": trial.address,
        "interface": interface.name,
        "mtu": interface.mtu,
        "path_mtu": interface.path_mtu,
        "is_free": not trial.error,
    }
    where = f"{trial.address} ({interface.name})"
    if trial.is_in_use:
        owner = owner_of(trial.address, ROCE_PORT)
        facts |= {"owner": owner.text, "owner_pid": owner.pid}
        text = f"{where}: UDP port {ROCE_PORT} is in use by {owner.text}"
        return Finding("address", "costs", text, "no device here meanwhile", owner.fix, facts)
    if trial.error:
        text = f"{where}: no device can be opened"
        return Finding("address", "costs", text, trial.error, facts=facts)
    text = f"{where}: MTU {interface.mtu}, RDMA MTU {interface.path_mtu}"
    if interface.path_mtu == _LARGEST_MTU:
        return Finding("address", "fine", text, facts=facts)
    return Finding(
        "address",
        "costs",
        text,
        f"{_LARGEST_MTU // interface.path_mtu} times the packets of RDMA MTU {_LARGEST_MTU}; the "
        "network and the peers have to carry larger ones, too",
        f"sudo ip link set dev {interface.name} mtu {_LARGEST_MTU + HEADERS}",
        facts,
    )


def _veth(link: _Link) -> list[Finding]:
    """Native XDP at one end of a veth pair switches the other's segmentation off."""
    if link.kind != "veth":
        return []
    name, found = link.interface.name, []
    other = "its other end, in another namespace," if link.peer == "PEER" else link.peer
    facts = {"interface": name, "can_segment": link.can_segment}
    if link.can_segment is False:
        found.append(
            Finding(
                "veth",
                "costs",
                f"{name} does not take packets in trains: native XDP at {other} does that",
                "about a fifth of the bandwidth is left",
                f"sudo ip link set dev {link.peer} xdp off",
                facts,
            )
        )
    if link.has_native_xdp:
        found.append(
            Finding(
                "veth",
                "costs",
                f"{name} has a native XDP program: its peer does not send in trains any more",
                "about a fifth of the bandwidth towards this end is left",
                f"sudo ip link set dev {name} xdp off",
                facts,
            )
        )
    if not found and link.can_segment:
        found.append(Finding("veth", "fine", f"{name} takes packets in trains", facts=facts))
    return found
