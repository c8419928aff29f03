# SPDX-License-Identifier: BSD-2-Clause
"""Finds out whether BPF works here: it tries the programs that would run."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from livedma.doctor.capabilities import obtain
from livedma.doctor.commands import as_root
from livedma.doctor.finding import Finding
from livedma.privilege import may_share

__all__ = ["bpf"]

_CAPABILITIES = ("net_admin", "bpf", "perfmon")
_NO_MONITOR = (
    "livedma serve sees itself from inside only: no retransmissions, and no servers but its own"
)
_NO_CAPTURE = "no livedma capture of interfaces, no livedma guard; the device works without"


def bpf() -> Sequence[Finding]:
    try:
        import livedma._native.bpf
        import livedma._native.monitor  # noqa: F401 - the first that would miss libbpf
    except ImportError as error:
        fix = as_root("apt install libbpf1")
        return [Finding("monitor", "costs", f"libbpf is missing ({error})", _NO_MONITOR, fix)]
    return [_monitor(), _capture(), _file_system()]


def _monitor() -> Finding:
    """Loads the monitor and attaches it to the loopback interface for a moment."""
    from livedma.monitor.monitor import Monitor, MonitorError

    try:
        with Monitor(["lo"], connections=1, sessions=1) as monitor:
            mode = monitor.mode
    except MonitorError as error:
        return _refused("monitor", error.__cause__ or error, str(error), _NO_MONITOR)
    facts = {"is_allowed": True, "mode": mode}
    if mode == "tcx":
        text = "its program was loaded and attached to lo (tcx), and is gone"
        return Finding("monitor", "fine", text, facts=facts)
    return Finding(
        "monitor",
        "costs",
        f"its program was loaded and attached to lo ({mode}), and is gone",
        "filters outlive a server that is killed; Linux 6.6 has tcx, which ends with it",
        facts=facts,
    )


def _capture() -> Finding:
    from livedma._native.bpf import CaptureSession

    try:
        CaptureSession(rx=True, tx=True).close()
    except OSError as error:
        return _refused("capture", error, str(error.strerror), _NO_CAPTURE)
    text = "its programs were loaded (XDP and tc), and are gone"
    return Finding("capture", "fine", text, facts={"is_allowed": True})


def _refused(name: str, error: BaseException, says: str, cost: str) -> Finding:
    code = error.errno if isinstance(error, OSError) else None
    facts = {"is_allowed": False, "errno": errno.errorcode.get(code or 0)}
    fix, text = "", says.partition(":")[0]
    if code in (errno.EPERM, errno.EACCES):
        if may_share() and _is_filtered():
            text = "a seccomp filter forbids bpf(2)"
            fix = "docker run --security-opt seccomp=unconfined IMAGE"
        elif may_share():
            text = says
        else:
            text = "the kernel does not permit it without CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
            fix = obtain(_CAPABILITIES, "serve DIR" if name == "monitor" else "capture INTERFACE")
    return Finding(name, "costs", text, cost, fix, facts)


def _is_filtered() -> bool:
    status = Path("/proc/self/status").read_text()
    return status.partition("\nSeccomp:")[2].split()[:1] == ["2"]


def _file_system() -> Finding:
    from livedma.bpffs import mounted_bpffs

    where = mounted_bpffs()
    facts = {"is_mounted": where is not None}
    if where is not None:
        text = "mounted: guards and devices that share an address find each other"
        return Finding("bpf-fs", "fine", text, facts=facts)
    if os.geteuid() == 0 and may_share():
        text = "not mounted at /sys/fs/bpf: the first device or guard that is started mounts it"
        return Finding("bpf-fs", "fine", text, facts=facts)
    return Finding(
        "bpf-fs",
        "costs",
        "not mounted at /sys/fs/bpf",
        "no guard, and one process for each address",
        as_root("mount -t bpf bpf /sys/fs/bpf"),
        facts,
    )
