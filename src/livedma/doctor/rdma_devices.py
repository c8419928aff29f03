# SPDX-License-Identifier: BSD-2-Clause
"""Lists the kernel's RDMA devices: livedma needs none, and one may be in its way."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from livedma.doctor.commands import as_root
from livedma.doctor.finding import Finding
from livedma.memory.host import Files

__all__ = ["rdma_devices"]

_DEVICES = "sys/class/infiniband"


@dataclass(frozen=True)
class _Device:
    name: str
    interfaces: list[str]
    addresses: list[str]  #: the addresses at which it takes RoCEv2
    is_roce: bool


def rdma_devices(files: Files | None = None) -> Sequence[Finding]:
    files = files or Files()
    found = [_device(files, name) for name in files.names(_DEVICES)]
    if not found:
        return [Finding("kernel-rdma", "fine", "the kernel has no RDMA device; none is needed")]
    return [_finding(device) for device in found]


def _device(files: Files, name: str) -> _Device:
    is_iwarp = "RNIC" in files.text(f"{_DEVICES}/{name}/node_type")
    interfaces, addresses, is_roce = set(), [], False
    for port in files.names(f"{_DEVICES}/{name}/ports"):
        path = f"{_DEVICES}/{name}/ports/{port}"
        is_roce |= not is_iwarp and files.text(f"{path}/link_layer").strip() != "InfiniBand"
        for index in files.names(f"{path}/gid_attrs/ndevs"):
            interface = files.text(f"{path}/gid_attrs/ndevs/{index}").strip()
            if not interface:  # the table's entry is not in use
                continue
            interfaces.add(interface)
            if files.text(f"{path}/gid_attrs/types/{index}").strip() == "RoCE v2":
                addresses.append(_address(files.text(f"{path}/gids/{index}").strip()))
    return _Device(name, sorted(interfaces), [one for one in addresses if one], is_roce)


def _address(gid: str) -> str:
    try:
        found = ipaddress.IPv6Address(gid)
    except ValueError:
        return ""
    return str(found.ipv4_mapped or found)


def _finding(device: _Device) -> Finding:
    where = ", ".join(device.interfaces) or "no interface"
    text = f"{device.name} on {where}"
    facts = {
        "device": device.name,
        "interfaces": device.interfaces,
        "addresses": device.addresses,
        "is_roce": device.is_roce,
    }
    if not device.is_roce:
        return Finding("kernel-rdma", "fine", f"{text}: not RoCE, so not in the way", facts=facts)
    if device.name.startswith("rxe"):
        remove = as_root(f"rdma link delete {device.name}")
        cost = (
            "rxe keeps UDP port 4791 of every address to itself; if nothing uses it any more, "
            f"`{remove}` ends that"
        )
        look = "rdma resource show"
        return Finding("kernel-rdma", "costs", text, cost, facts=facts, look=look)
    cost = (
        f"a NIC with RoCE takes the packets to {', '.join(device.addresses) or 'its addresses'} "
        "before the kernel sees them: use other addresses for livedma"
    )
    return Finding("kernel-rdma", "costs", text, cost, facts=facts)
