# SPDX-License-Identifier: BSD-2-Clause
"""Finds out what this machine can do for a server and its device, what the rest costs, and how to
change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from livedma.doctor.addresses import addresses
from livedma.doctor.bounded import look
from livedma.doctor.bpf import bpf
from livedma.doctor.capabilities import capabilities
from livedma.doctor.directories import directories
from livedma.doctor.finding import Finding
from livedma.doctor.kernel import kernel
from livedma.doctor.limits import limits
from livedma.doctor.links import At, Link, look_up
from livedma.doctor.memory import memory
from livedma.doctor.offloads import mtu, offloads, programs
from livedma.doctor.processor import processor
from livedma.doctor.rdma_devices import rdma_devices
from livedma.doctor.tcp_ports import tcp_ports
from livedma.errors import LivedmaError

__all__ = ["GROUPS", "VERSION", "Finding", "Report", "examine"]

VERSION = 1  #: of the report's form: later versions add fields and rename none
GROUPS = ("kernel", "processor", "privileges", "limits", "memory", "bpf", "network", "server")
_LONGEST_S = 10.0  # for one look: none takes a tenth of it, unless something hangs


@dataclass(frozen=True)
class Report:
    findings: Sequence[Finding]

    @property
    def free_addresses(self) -> list[str]:
        """Returns the addresses at which a server could be started now."""
        return [
            finding.facts["address"]
            for finding in self.findings
            if finding.facts.get("is_rdma_port_free")
        ]

    @property
    def can_run(self) -> bool:
        """Returns whether a server can be started, at one address at least: the main question."""
        stops = any(finding.state == "stops" for finding in self.findings)
        return not stops and bool(self.free_addresses)


def examine(control: Path, only: str = "") -> Report:
    """Tries and reads; changes nothing. only: one interface's name, or one address.

    control: where the server would have its control socket. Raises LivedmaError if there is no such
    interface or address.
    """
    links, places, trouble = _network(only)
    looks: tuple[tuple[str, str, Callable[[], Sequence[Finding]]], ...] = (
        ("kernel", "kernel", kernel),
        ("processor", "processor", processor),
        ("privileges", "capabilities", capabilities),
        ("limits", "limits", limits),
        ("memory", "memory", memory),
        ("bpf", "bpf", bpf),
        ("network", "address", lambda: trouble or addresses(places)),
        ("network", "mtu", lambda: [mtu(link) for link in links]),
        ("network", "offloads", lambda: [one for link in links for one in offloads(link)]),
        ("network", "programs", lambda: [one for link in links for one in programs(link)]),
        ("network", "kernel-rdma", rdma_devices),
        ("server", "tcp-ports", tcp_ports),
        ("server", "directories", lambda: directories(control)),
    )
    return Report(list(_found(looks)))


def _network(only: str) -> tuple[list[Link], list[At], list[Finding]]:
    """Returns links and addresses, or a finding that says why they are unknown."""
    try:
        return *look_up(only), []
    except LivedmaError:
        raise
    except Exception as error:  # a sandbox without netlink, which the device needs as well
        text = f"the kernel does not tell which addresses there are: {error}"
        return [], [], [Finding("address", "stops", text)]


def _found(
    looks: Sequence[tuple[str, str, Callable[[], Sequence[Finding]]]],
) -> Iterator[Finding]:
    for group, name, at in looks:
        for finding in look(name, at, _LONGEST_S):
            yield replace(finding, group=group)
