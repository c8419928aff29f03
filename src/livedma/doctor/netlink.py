# SPDX-License-Identifier: BSD-2-Clause
"""Reads facts of rtnetlink(7) about interfaces besides their names: kinds, peers and BPF programs.

The attributes' numbers are those of linux/if_link.h, linux/rtnetlink.h and linux/pkt_cls.h.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from livedma.rdma.rtnetlink import GET_LINK, IFF_UP, LINK, attributes, everything

__all__ = ["Entry", "Filter", "bpf_filters", "entries"]

_IFNAME, _MTU, _LINK, _LINKINFO, _LINK_NETNSID, _XDP = 3, 4, 5, 18, 37, 43
_INFO_KIND = 1
_XDP_PROGRAM = {4: "any", 5: "native", 6: "generic", 7: "offloaded"}

_GET_FILTER = 46
_FILTER = struct.Struct("=BxxxiIII")  # struct tcmsg: family, index, handle, parent, info
_KIND, _OPTIONS = 1, 2
_BPF_NAME, _BPF_ID = 7, 11


@dataclass(frozen=True)
class Entry:
    index: int
    name: str
    mtu: int
    is_up: bool
    kind: str  #: "veth", "bridge", …; empty: hardware, or loopback
    below: int | None  #: the interface that this one stands on, or a veth's other end
    is_below_elsewhere: bool  #: it is in another namespace; its index means nothing here
    xdp: Mapping[str, int]  #: ids of programs by "native", "generic", "offloaded" or "any"


@dataclass(frozen=True)
class Filter:
    """Describes a BPF program at a hook of tc."""

    priority: int
    name: str
    program: int | None  #: None: the kernel does not say


def entries() -> list[Entry]:
    """Returns all interfaces of the network namespace."""
    found = []
    for message in everything(GET_LINK, LINK.pack(0, 0, 0, 0, 0)):
        _, _, index, flags, _ = LINK.unpack_from(message)
        told = dict(attributes(message[LINK.size :]))
        info = dict(attributes(told.get(_LINKINFO, b"")))
        found.append(
            Entry(
                index=index,
                name=_text(told[_IFNAME]),
                mtu=_number(told[_MTU]),
                is_up=bool(flags & IFF_UP),
                kind=_text(info.get(_INFO_KIND, b"")),
                below=_number(told[_LINK]) if _LINK in told else None,
                is_below_elsewhere=_LINK_NETNSID in told,
                xdp=_programs(told.get(_XDP, b"")),
            )
        )
    return found


def _programs(nested: bytes) -> dict[str, int]:
    told = {_XDP_PROGRAM[kind]: value for kind, value in attributes(nested) if kind in _XDP_PROGRAM}
    return {mode: number for mode, value in told.items() if (number := _number(value))}


def bpf_filters(index: int, parent: int) -> list[Filter]:
    """Returns an interface's programs at one hook of clsact; none without such a qdisc."""
    found = []
    with contextlib.suppress(OSError):
        for message in everything(_GET_FILTER, _FILTER.pack(0, index, 0, parent, 0)):
            _, _, handle, _, info = _FILTER.unpack_from(message)
            told = dict(attributes(message[_FILTER.size :]))
            if _text(told.get(_KIND, b"")) != "bpf" or _OPTIONS not in told or not handle:
                continue
            options = dict(attributes(told[_OPTIONS]))
            program = _number(options[_BPF_ID]) if _BPF_ID in options else None
            found.append(Filter(info >> 16, _text(options.get(_BPF_NAME, b"")), program))
    return found


def _text(value: bytes) -> str:
    return value.partition(b"\0")[0].decode(errors="replace")


def _number(value: bytes) -> int:
    return int.from_bytes(value[:4], sys.byteorder)
