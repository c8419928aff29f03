"""What a device at an address would be, found out by opening one for a moment."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from dataclasses import dataclass

from livedma.doctor.finding import Finding
from livedma.doctor.udp_owner import ROCE_PORT
from livedma.errors import LivedmaError
from livedma.rdma import Device

__all__ = ["Trial", "ports", "sharing"]


@dataclass(frozen=True)
class Trial:
    address: str
    error: str = ""  #: why there can be no device now; the rest is empty then
    is_in_use: bool = False  #: that is why
    kind: str = ""
    reason: str = ""  #: why this kind of port
    share_reason: str = ""  #: why the address cannot be shared

    @classmethod
    def of(cls, address: str, index: int) -> Trial:
        try:
            with Device(address, spin=0, max_qp=16) as device:
                reasons = device.port_reason, device.share_reason
                return cls(address, "", False, device.port_kind, *reasons)
        except (LivedmaError, OSError) as error:
            return cls(address, str(error), _is_in_use(address, index))

    @property
    def is_weak(self) -> bool:
        return self.kind == "udp" and ipaddress.ip_address(self.address).version == 4


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
    """One finding for each kind of port and the reason for it."""
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
            fix = _as_root() if "CAP_NET_RAW" in reason else ""
            found.append(Finding("port", "costs", text, reason, fix, facts))
        else:
            found.append(Finding("port", "fine", f"{text}: {reason}", facts=facts))
    return found


def sharing(trials: list[Trial]) -> list[Finding]:
    """Whether several processes may have devices at one address."""
    reasons = list(dict.fromkeys(trial.share_reason for trial in trials if not trial.error))
    found = []
    for reason in reasons:
        facts = {"is_possible": not reason}
        if reason:
            text = "one process for each address"
            fix = _as_root() if "CAP_" in reason else ""
            found.append(Finding("sharing", "costs", text, reason, fix, facts))
        else:
            text = "several processes may have devices at one address"
            found.append(Finding("sharing", "fine", text, facts=facts))
    return found


def _as_root() -> str:
    return f"sudo {os.path.abspath(sys.argv[0])} …"
