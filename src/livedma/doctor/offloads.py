# SPDX-License-Identifier: BSD-2-Clause
"""Checks the size of an interface's packets, whether they go in trains, and which programs see
them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from livedma.doctor.commands import as_root
from livedma.doctor.finding import Finding
from livedma.doctor.links import Feature, Link
from livedma.doctor.programs import Program
from livedma.rdma.interface import HEADERS

__all__ = ["mtu", "offloads", "programs"]

_LARGEST_MTU = 4096

_SEGMENT, _GRO = "tx-udp-segmentation", "rx-gro"
_CHECKSUMS = ("tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-ip-generic")
_NATIVE = "native XDP"
_UNCUT = ("veth", "lo")  # trains pass these uncut, and need not be joined again
_BY_ANOTHER = "tun"  # the program at its other end decides what it can
_UNKNOWN = Feature(is_on=True, can_change=False)


def mtu(link: Link) -> Finding:
    interface = link.interface
    facts = {"interface": link.name, "mtu": interface.mtu, "path_mtu": interface.path_mtu}
    text = f"{link.name}: {interface.mtu}, so that RDMA packets carry {interface.path_mtu} bytes"
    if interface.path_mtu == _LARGEST_MTU:
        return Finding("mtu", "fine", text, facts=facts)
    raise_it = as_root(f"ip link set dev {link.name} mtu {_LARGEST_MTU + HEADERS}")
    is_on_a_cable = not link.kind and link.name != "lo"
    return Finding(
        "mtu",
        "costs",
        text,
        f"{_LARGEST_MTU // interface.path_mtu} times the packets of RDMA MTU {_LARGEST_MTU}: with "
        "1024, up to a third of the bandwidth, two thirds where they do not go in trains; the "
        "network and the peers have to carry larger ones, too"
        + (f": if they do, `{raise_it}`" if is_on_a_cable else ""),
        # On a cable the switches decide: they drop larger packets than they carry without a word.
        "" if is_on_a_cable else raise_it,
        {**facts, "raise": raise_it},
        look=f"ip -d link show dev {link.name}" if is_on_a_cable else "",
    )


def offloads(link: Link) -> Sequence[Finding]:
    facts = {
        "interface": link.name,
        "kind": link.kind,
        "can_segment": _is_on(link, _SEGMENT),
        "can_gro": _is_on(link, _GRO),
    }
    if not link.features:
        text = f"{link.name}: the kernel does not tell what it can"
        return [Finding("offloads", "unknown", text, facts=facts)]
    found = [
        Finding("offloads", "costs", text, cost, fix, facts, look=look)
        for text, cost, fix, look in _troubles(link)
    ]
    return found or [Finding("offloads", "fine", _words(link), facts=facts)]


def _is_on(link: Link, name: str) -> bool | None:
    feature = link.features.get(name)
    return feature.is_on if feature else None


def _words(link: Link) -> str:
    if not link.features.get(_SEGMENT, _UNKNOWN).is_on:
        return f"{link.name} cannot cut trains of packets itself: the kernel does it, late"
    return f"{link.name} takes packets in trains"


def _troubles(link: Link) -> Iterator[tuple[str, str, str, str]]:
    """Yields text, cost, fix and look of each trouble."""
    name = link.name
    segment = link.features.get(_SEGMENT, _UNKNOWN)
    if not segment.is_on and segment.can_change and link.kind != _BY_ANOTHER:
        yield (
            f"{name} does not take packets in trains: {_SEGMENT} is off",
            "about a fifth of the bandwidth is left on a veth; else more CPU time",
            as_root(f"ethtool -K {name} {_checksums(link)}{_SEGMENT} on"),
            "",
        )
    elif not segment.is_on and link.kind == "veth":
        other = link.peer or "its other end, in another namespace,"
        yield (
            f"{name} does not take packets in trains: native XDP at {other} does that",
            "about a fifth of the bandwidth is left (4.6 instead of 21 Gbit/s)",
            "",
            f"ip -d link show dev {link.peer or 'PEER'}",
        )
    if not link.features.get(_GRO, _UNKNOWN).is_on and link.kind not in _UNCUT and name != "lo":
        yield (
            f"{name} does not join packets that come in (GRO is off)",
            "one packet a time: 2 to 4 us each, that is 7 to 11 Gbit/s with RDMA MTU 4096",
            as_root(f"ethtool -K {name} gro on"),
            "",
        )


def _checksums(link: Link) -> str:
    """Returns the switches for checksums: without them the kernel leaves segmentation off."""
    found = [link.features[name] for name in _CHECKSUMS if name in link.features]
    is_missing = not any(one.is_on for one in found) and any(one.can_change for one in found)
    return "tx on " if is_missing else ""


def programs(link: Link) -> Sequence[Finding]:
    """Reports programs of others, whose use of RoCE is unknown. livedma's own are only named."""
    own = [str(one) for one in link.programs if one.is_ours]
    others = [one for one in link.programs if not one.is_ours]
    facts = {
        "interface": link.name,
        "own": own,
        "sees_all": link.sees_all_programs,
    }
    found = [
        Finding(
            "programs",
            "costs",
            f"{link.name} has a BPF program of others: {one}",
            _cost(one.hook, link.kind),
            facts={
                **facts,
                "hook": one.hook,
                "id": one.id,
                "program": one.name,
                "remove": as_root(one.remove),
            },
            look=_look(one, link.name),
        )
        for one in others
    ]
    if link.kind == "veth" and not others and any(_NATIVE in each for each in own):
        text = f"{link.name} has a native XDP program of livedma's: {', '.join(own)}"
        found.append(Finding("programs", "costs", text, _cost(_NATIVE, "veth"), facts=facts))
    if found:
        return found
    if not link.sees_all_programs:
        text = f"{link.name} has no XDP program; whether tc has one, only root may see"
        return [Finding("programs", "unknown", text, facts=facts)]
    text = f"{link.name} has {', '.join(own) or 'none'}{' (livedma)' if own else ''}"
    return [Finding("programs", "fine", text, facts=facts)]


def _look(one: Program, interface: str) -> str:
    """Returns a command to show it, not to end it: a container network may depend on it."""
    if one.id is None:
        return as_root(f"bpftool net show dev {interface}")
    return as_root(f"bpftool prog show id {one.id}")


def _cost(hook: str, kind: str) -> str:
    if "XDP" not in hook:
        return "it sees each packet, and may drop or change it"
    cost = "it sees each packet and may drop it; livedma guard finds its place taken"
    if hook == _NATIVE and kind == "veth":
        cost += "; about a fifth of the bandwidth towards this end is left, as its peer does not "
        cost += "send in trains any more"
    return cost
