# SPDX-License-Identifier: BSD-2-Clause
"""Finds out what a device would have at each of this host's addresses."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from typing import Any

from livedma.doctor.commands import as_root, livedma
from livedma.doctor.finding import Finding
from livedma.doctor.links import At
from livedma.doctor.port_owner import ROCE_PORT, Owner, owner_of
from livedma.doctor.trial import Trial, ports, sharing

__all__ = ["addresses"]

_LONGEST_S = 1.0
_TRIED_LEAST = 16  # tried however long that takes


def addresses(places: Sequence[At]) -> Sequence[Finding]:
    if not places:
        text = "no interface that is up has an address"
        return [Finding("address", "stops", text, fix=as_root("ip link set dev lo up"))]
    until_s, trials = time.monotonic() + _LONGEST_S, list[Trial]()
    for place in places:
        if len(trials) >= _TRIED_LEAST and time.monotonic() > until_s:
            break
        trials.append(Trial.of(place.address, place.link.interface.index))
    tried = zip(trials, places, strict=False)
    found = [*ports(trials), *sharing(trials), *(_address(trial, at) for trial, at in tried)]
    if rest := places[len(trials) :]:
        text = (
            f"{len(rest)} more were not tried: name one, as in `livedma doctor {rest[0].address}`"
        )
        facts = {"not_tried": [place.address for place in rest]}
        found.append(Finding("address", "unknown", text, facts=facts))
    return found


def _address(trial: Trial, at: At) -> Finding:
    interface = at.link.interface
    facts: dict[str, Any] = {
        "address": trial.address,
        "interface": interface.name,
        "is_free": not trial.error,
        "is_rdma_port_free": None if trial.error else not trial.rdma_port_error,
    }
    where = f"{trial.address} ({interface.name})"
    alone = "no device here meanwhile; livedma serve without --listen ends with it"
    if trial.is_in_use:
        owner = owner_of(trial.address, ROCE_PORT, "udp")
        facts |= _owner_facts(owner)
        text = f"{where}: UDP port {ROCE_PORT} is in use by {owner.text}"
        cost = f"{alone}{_shares(owner)}"
        fix = _beside(trial.address) if owner.command else ""
        return Finding("address", "costs", text, cost, fix, facts, look=owner.look)
    if trial.error:
        text = f"{where}: no device can be opened"
        return Finding("address", "costs", text, f"{alone} ({trial.error})", facts=facts)
    if trial.rdma_port_error:
        owner = owner_of(trial.address, ROCE_PORT, "udp")
        facts |= _owner_facts(owner)
        text = f"{where}: RDMA port {trial.rdma_port} is that of {owner.text}"
        cost = "both can run at this address: a second server takes another RDMA port"
        fix = livedma(f"serve DIR --listen {trial.address} --rdma {trial.rdma_port + 1}")
        return Finding("address", "costs", text, cost, fix, facts, look=owner.look)
    return Finding("address", "fine", f"{where}: a device can be opened", facts=facts)


def _owner_facts(owner: Owner) -> dict[str, Any]:
    return {"owner": owner.text, "owner_pid": owner.pid, "is_own": bool(owner.command)}


def _beside(address: str) -> str:
    """Returns a command for a second server: each IPv4 loopback address has its own ports."""
    where = ipaddress.ip_address(address)
    if where.version == 6 or not where.is_loopback:
        return ""
    return livedma(f"serve DIR --listen {where + 1}")


def _shares(owner: Owner) -> str:
    """Says how a second process can use this address, if livedma has it."""
    if not owner.command:
        return ""
    return "; processes with CAP_BPF and CAP_NET_ADMIN share one address, others need one each"
