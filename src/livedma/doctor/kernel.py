# SPDX-License-Identifier: BSD-2-Clause
"""Checks the features of this kernel."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence

from livedma.doctor.commands import as_root, sysctl, sysctl_kept
from livedma.doctor.finding import Finding
from livedma.memory.host import Files

__all__ = ["kernel"]

_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_CLOCK = "sys/devices/system/clocksource/clocksource0"
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
#: the kernel version that brought each feature, and what is missed without it
_SINCE = (
    ((5, 0), "UDP GSO and GRO: a tenth of the bandwidth is left"),
    ((5, 11), "userfaultfd for all users, and BPF maps that RLIMIT_MEMLOCK does not count"),
    ((5, 18), "what livedma guard needs"),
    ((6, 6), "tcx: the monitor's filters outlive a server that is killed"),
    ((6, 10), "packet ports: 16 of the 32 bits of an ICRC protect IPv4"),
)


def kernel(files: Files | None = None) -> Sequence[Finding]:
    files = files or Files()
    return [
        version(os.uname().release),
        _segmentation(),
        _btf(files),
        _jit(files),
        _unprivileged_bpf(files),
        _io_uring(files),
        _user_namespaces(files),
        _clock(files),
    ]


def version(release: str) -> Finding:
    found = re.match(r"(\d+)\.(\d+)", release)
    facts = {"release": release}
    if not found:
        return Finding("version", "unknown", f"Linux {release}", facts=facts)
    own = int(found[1]), int(found[2])
    lacks = [what for since, what in _SINCE if own < since]
    if not lacks:
        return Finding("version", "fine", f"Linux {release}", facts=facts)
    cost = "without " + "; without ".join(lacks)
    text = f"Linux {release}; 6.10 has all that is used"
    return Finding("version", "costs", text, cost, facts=facts)


def _segmentation() -> Finding:
    facts = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option in (("gso", _UDP_SEGMENT), ("gro", _UDP_GRO)):
            try:
                probe.setsockopt(_SOL_UDP, option, 1)
                facts[name] = True
            except OSError:
                facts[name] = False
    missing = [name.upper() for name, there in facts.items() if not there]
    if not missing:
        text = "many packets a call, both ways (UDP GSO and GRO)"
        return Finding("segmentation", "fine", text, facts=facts)
    return Finding(
        "segmentation",
        "costs",
        f"this kernel ({os.uname().release}) has no UDP {' and '.join(missing)}",
        "one packet a call: a tenth of the bandwidth; Linux 5.0 has both",
        facts=facts,
    )


def _btf(files: Files) -> Finding:
    is_there = "vmlinux" in files.names("sys/kernel/btf")
    facts = {"is_there": is_there}
    if is_there:
        return Finding("btf", "fine", "the kernel describes its types to BPF", facts=facts)
    return Finding(
        "btf",
        "costs",
        "the kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)",
        "livedma mem --watch counts by /proc/vmstat; everything else does without",
        facts=facts,
    )


def _jit(files: Files) -> Finding:
    value = files.number("proc/sys/net/core/bpf_jit_enable")
    facts = {"bpf_jit_enable": value}
    if value is None:
        text = "only the host's own network namespace tells (net.core.bpf_jit_enable)"
        return Finding("bpf-jit", "unknown", text, facts=facts)
    if value:
        return Finding("bpf-jit", "fine", "BPF programs are compiled", facts=facts)
    settings = {"net.core.bpf_jit_enable": 1}
    return Finding(
        "bpf-jit",
        "costs",
        "BPF programs are interpreted (net.core.bpf_jit_enable=0)",
        "monitor, guard and capture take several times as long for each packet",
        sysctl(settings),
        facts,
        sysctl_kept(settings),
    )


def _unprivileged_bpf(files: Files) -> Finding:
    value = files.number("proc/sys/kernel/unprivileged_bpf_disabled")
    rule = "every user may load simple ones" if value == 0 else "CAP_BPF is needed for any"
    text = f"{rule} (kernel.unprivileged_bpf_disabled={value}); livedma's need CAP_BPF anyway"
    facts = {"unprivileged_bpf_disabled": value}
    if value is None:
        return Finding(
            "bpf-users", "unknown", "the kernel does not say which users may use BPF", "", "", facts
        )
    return Finding("bpf-users", "fine", text, facts=facts)


def _io_uring(files: Files) -> Finding:
    """Checks io_uring, with which the server pins memory."""
    value = files.number("proc/sys/kernel/io_uring_disabled")
    facts = {"io_uring_disabled": value}
    if not value:
        return Finding("io-uring", "fine", "may be used to pin memory", facts=facts)
    users = "nobody" if value == 2 else "CAP_SYS_ADMIN and kernel.io_uring_group alone"
    return Finding(
        "io-uring",
        "costs",
        f"for {users} (kernel.io_uring_disabled={value}), which an administrator chose for safety",
        "memory is locked, not pinned; the kernel may move it, which only a device in hardware "
        "would mind",
        facts=facts,
    )


def _user_namespaces(files: Files) -> Finding:
    most = files.number("proc/sys/user/max_user_namespaces")
    clone = files.number("proc/sys/kernel/unprivileged_userns_clone")
    is_allowed = bool(most) and clone != 0
    facts = {"max_user_namespaces": most, "is_allowed": is_allowed}
    text = "users may make them" if is_allowed else "users may make none"
    return Finding("user-ns", "fine", f"{text}; none is needed", facts=facts)


def _clock(files: Files) -> Finding:
    source = files.text(f"{_CLOCK}/current_clocksource").strip()
    available = files.text(f"{_CLOCK}/available_clocksource").split()
    facts = {"source": source or None, "available": available}
    if not source:
        return Finding("clock", "unknown", "/sys does not tell what the clock is", facts=facts)
    if source not in _SLOW_CLOCKS:
        return Finding("clock", "fine", f"{source}: read without the kernel", facts=facts)
    better = next((one for one in ("tsc", "kvm-clock") if one in available), "")
    return Finding(
        "clock",
        "costs",
        f"{source}: each look at it is a system call and a slow register",
        "about a microsecond for each of several looks an operation; the kernel's log says why it "
        f"does not use {better}"
        if better
        else "about a microsecond for each of several looks an operation",
        facts=facts,
        look=f"{as_root('dmesg')} | grep -i -e clocksource -e tsc" if better else "",
    )
