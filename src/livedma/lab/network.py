# SPDX-License-Identifier: BSD-2-Clause
"""Makes the guests' network: a namespace with a bridge and a TAP for each guest, and no way out."""

from __future__ import annotations

import fcntl
import struct
from pathlib import Path

from pyroute2 import netns

from livedma.errors import LabError
from livedma.lab.hosts import Host

__all__ = ["make_network"]

MTU = 9000  # of the bridge's ports: large enough for all that guests and host choose
_QUEUE_PACKETS = 10_000  # emulated guests are slow readers: a burst has to wait and not be dropped
_MAC = "52:54:00:77:00:fe"  # always the same: guests from a snapshot remember it
_NO_DAD = 0x02
_TUNSETIFF, _TUNSETPERSIST = 0x400454CA, 0x400454CB
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000


def _make_tap(host: Host, name: str) -> None:
    with host.inside(), open("/dev/net/tun", "r+b", buffering=0) as tun:
        flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR
        fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(tun, _TUNSETPERSIST, 1)


def make_network(host: Host, taps: list[str], mtu: int) -> None:
    """Makes the host's namespace, its interface (a bridge with its addresses), and the TAPs.

    mtu: of the host and of the guests: peers on one network have to agree.
    """
    try:
        netns.create(host.name)
        with host.inside():
            # Without router and duplicate address detection, the addresses can be used at once.
            for kind in ("all", "default"):
                for setting in ("accept_dad", "accept_ra"):
                    Path(f"/proc/sys/net/ipv6/conf/{kind}/{setting}").write_text("0")
        for tap in taps:
            _make_tap(host, tap)
        with host.netlink() as ip:
            ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")
            ip.link("add", ifname=host.iface, kind="bridge", br_forward_delay=0, br_stp_state=0)
            bridge = ip.link_lookup(ifname=host.iface)[0]
            for tap in taps:
                index = ip.link_lookup(ifname=tap)[0]
                ip.link("set", index=index, mtu=MTU, txqlen=_QUEUE_PACKETS)
                ip.link("set", index=index, master=bridge, state="up")
            ip.link("set", index=bridge, kind="bridge", br_mcast_snooping=0)
            ip.link("set", index=bridge, address=_MAC, mtu=mtu, state="up")
            ip.addr("add", index=bridge, address=host.ipv4, prefixlen=24)
            ip.addr("add", index=bridge, address=host.ipv6, prefixlen=64, flags=_NO_DAD)
    except OSError as error:
        raise LabError(f"the guests' network cannot be made: {error}") from error
