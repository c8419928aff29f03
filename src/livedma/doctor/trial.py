# SPDX-License-Identifier: BSD-2-Clause
"""Finds out what a device at an address would be: it opens one for a moment."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass

from livedma.doctor.capabilities import obtain
from livedma.doctor.finding import Finding
from livedma.doctor.port_owner import ROCE_PORT
from livedma.errors import LivedmaError, PortInUseError
from livedma.privilege import may_share
from livedma.rdma import Device

__all__ = ["RDMA_PORT", "Trial", "ports", "sharing"]

RDMA_PORT = 20049


@dataclass(frozen=True)
class Trial:
    address: str
    error: str = ""  #: why there can be no device now; the rest is empty then
    is_in_use: bool = False  #: the error is that the port is in use
    kind: str = ""
    reason: str = ""  #: why it is this kind of port
    share_reason: str = ""  #: why the address cannot be shared
    rdma_port: int = RDMA_PORT
    rdma_port_error: str = ""  #: why a server cannot have its RDMA port

    @classmethod
    def of(cls, address: str, index: int) -> Trial:
        share = None if _may_join() else False
        try:
            with Device(address, spin=0, max_qp=16, share=share) as device:
                return cls(
                    address,
                    kind=device.port_kind,
                    reason=device.port_reason,
                    share_reason=device.share_reason if share is None else "",
                    rdma_port_error=_claim(device),
                )
        except (LivedmaError, OSError) as error:
            return cls(address, str(error), _is_in_use(address, index))

    @property
    def is_weak(self) -> bool:
        return self.kind == "udp" and ipaddress.ip_address(self.address).version == 4


def _may_join() -> bool:
    """Returns whether to share: that may mount the BPF file system, which a look must not."""
    try:
        from livedma.bpffs import mounted_bpffs
    except ImportError:  # without libbpf: the device will say so
        return True
    return not may_share() or mounted_bpffs() is not None


def _claim(device: Device) -> str:
    try:
        device.claim_port(RDMA_PORT)
    except PortInUseError as error:
        return str(error)
    device.release_port(RDMA_PORT)
    return ""


def _is_in_use(address: str, index: int) -> bool:
    where = ipaddress.ip_address(address)
    family = socket.AF_INET if where.version == 4 else socket.AF_INET6
    scope = (0, index) if where.is_link_local and where.version == 6 else ()
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, ROCE_PORT, *scope))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def ports(trials: list[Trial]) -> list[Finding]:
    """Returns a finding for each kind of port and its reason."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for trial in trials:
        if not trial.error:
            key = (trial.kind, trial.reason, trial.is_weak)
            groups.setdefault(key, []).append(trial.address)
    found = []
    for (kind, reason, is_weak), at in groups.items():
        facts = {"kind": kind, "addresses": at}
        text = f"{kind} at {', '.join(at)}"
        if is_weak:
            fix = obtain(("net_raw",), "serve DIR") if "CAP_NET_RAW" in reason else ""
            found.append(Finding("port", "costs", text, reason, fix, facts))
        else:
            found.append(Finding("port", "fine", f"{text}: {reason}", facts=facts))
    return found


def sharing(trials: list[Trial]) -> list[Finding]:
    """Returns whether several processes may have devices at one address."""
    reasons = list(dict.fromkeys(trial.share_reason for trial in trials if not trial.error))
    found = []
    for reason in reasons:
        facts = {"is_possible": not reason}
        if reason:
            text = "one process for each address"
            fix = obtain(("net_admin", "bpf"), "serve DIR") if "CAP_" in reason else ""
            found.append(Finding("sharing", "costs", text, reason, fix, facts))
        else:
            text = "several processes may have devices at one address"
            found.append(Finding("sharing", "fine", text, facts=facts))
    return found
