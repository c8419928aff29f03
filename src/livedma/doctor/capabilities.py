# SPDX-License-Identifier: BSD-2-Clause
"""Finds out what this process may do, and what each part of livedma would need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livedma.doctor.commands import as_root, grant, livedma
from livedma.doctor.finding import Finding
from livedma.nfs.server.config import Config
from livedma.nfs.server.store.credentials import Actor
from livedma.privilege import capability_set, maps_all_users

__all__ = ["SERVER", "capabilities", "obtain"]

#: by number, as setpriv and capsh spell them
_NAMES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid"),
    *("setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw"),
    *("ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct"),
    *("sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod"),
    *("lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore"),
)
_IMPLIED_BY_SYS_ADMIN = ("bpf", "perfmon")
#: all that a server can use: the capabilities of its systemd unit
SERVER = ("setuid", "setgid", "dac_read_search", "net_raw", "net_admin", "bpf", "perfmon")


@dataclass(frozen=True)
class _Purpose:
    """Says which capabilities a use of livedma takes, and what is missed without them."""

    name: str
    needs: tuple[str, ...]
    missed: dict[str, tuple[str, ...]]  #: what is missed without each capability
    arguments: str  #: of livedma
    as_root: bool = False


_IDENTITIES = "clients of several users have one user's rights"
_BUFFERS = "socket buffers end at net.core.rmem_max"
_MONITOR, _SHARING = "no BPF monitor", "one process for each address"
_PURPOSES = (
    _Purpose(
        "server",
        SERVER,
        {
            **dict.fromkeys(("setuid", "setgid"), (_IDENTITIES,)),
            "dac_read_search": ("handles of files do not survive a restart",),
            "net_raw": ("16 of the 32 bits of an ICRC protect IPv4",),
            "net_admin": (_BUFFERS, _MONITOR, _SHARING),
            "bpf": (_MONITOR, _SHARING),
            "perfmon": (_MONITOR,),
        },
        "serve DIR",
    ),
    _Purpose(
        "capture",
        ("net_admin", "bpf", "perfmon"),
        dict.fromkeys(
            ("net_admin", "bpf", "perfmon"),
            ("livedma capture takes packets of livedma's own devices only (--device)",),
        ),
        "capture INTERFACE",
    ),
    _Purpose(
        "guard",
        ("net_admin", "sys_admin"),
        dict.fromkeys(("net_admin", "sys_admin"), ("no firewall for RoCE",)),
        "guard INTERFACE",
        as_root=True,
    ),
    _Purpose(
        "lab",
        ("net_admin", "sys_admin"),
        dict.fromkeys(
            ("net_admin", "sys_admin"),
            ("the demo takes two loopback addresses; no lab, no experiments with a lossy wire",),
        ),
        "demo",
        as_root=True,
    ),
)


def capabilities() -> Sequence[Finding]:
    held, could = _names(capability_set("CapEff")), _names(capability_set("CapBnd"))
    return [
        _in_effect(held, could),
        *(_purpose(purpose, held, could) for purpose in _PURPOSES),
        _identities(),
    ]


def obtain(needed: Sequence[str], arguments: str) -> str:
    """Returns the command that runs livedma with capabilities that it lacks now."""
    could = _names(capability_set("CapBnd"))
    barred = [name for name in needed if not _has(could, name)]
    if barred:
        # A process within the container cannot get what that was started without.
        return " ".join(["docker run", *(f"--cap-add={name.upper()}" for name in barred), "IMAGE"])
    return grant(needed, arguments)


def _names(mask: int) -> frozenset[str]:
    return frozenset(name for number, name in enumerate(_NAMES) if mask >> number & 1)


def _has(held: frozenset[str], name: str) -> bool:
    return name in held or (name in _IMPLIED_BY_SYS_ADMIN and "sys_admin" in held)


def _in_effect(held: frozenset[str], could: frozenset[str]) -> Finding:
    facts: dict[str, Any] = {
        "effective": sorted(held),
        "bounding": sorted(could),
        "uid": os.geteuid(),
        "is_user_namespace": _is_user_namespace(),
    }
    if len(held) == len(_NAMES):
        text = "all"
    elif not held:
        text = "none"
    elif len(held) > len(_NAMES) // 2:
        text = f"all but {_listed(sorted(set(_NAMES) - held))}"
    else:
        text = _listed(sorted(held))
    text = f"{text}; user id {os.geteuid()}"
    if facts["is_user_namespace"]:
        text += "; in a user namespace, so that they count for its own things only"
    return Finding("capabilities", "fine", text, facts=facts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"CAP_{name.upper()}" for name in names)


def _is_user_namespace() -> bool:
    try:
        return not maps_all_users(Path("/proc/self/uid_map").read_text())
    except OSError:  # a kernel without user namespaces
        return False


def _purpose(purpose: _Purpose, held: frozenset[str], could: frozenset[str]) -> Finding:
    missing = [name for name in purpose.needs if not _has(held, name)]
    facts = {"needs": list(purpose.needs), "missing": missing}
    name = f"for-{purpose.name}"
    if not missing:
        return Finding(name, "fine", f"has {_listed(purpose.needs)}", facts=facts)
    if purpose.as_root and all(_has(could, each) for each in missing):
        fix = as_root(livedma(purpose.arguments))
    else:
        fix = obtain(purpose.needs, purpose.arguments)
    cost = "; ".join(dict.fromkeys(what for each in missing for what in purpose.missed[each]))
    return Finding(name, "costs", f"lacks {_listed(missing)}", cost, fix, facts)


def _identities() -> Finding:
    is_privileged = Actor(Config()).is_privileged
    facts = {"is_privileged": is_privileged}
    if is_privileged:
        text = "files are accessed as the calling user"
        return Finding("identities", "fine", text, facts=facts)
    return Finding(
        "identities",
        "costs",
        f"files are accessed as user {os.geteuid()} for every caller",
        _IDENTITIES,
        obtain(SERVER, "serve DIR"),
        facts,
    )
