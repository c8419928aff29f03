"""What the kernel and the processor allow, whatever the address."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from livedma._native.port import SOCKET_BUFFER_BYTES
from livedma.doctor.finding import Finding
from livedma.doctor.memory import memory

__all__ = ["system"]

_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SO_RCVBUFFORCE = 33


def system() -> list[Finding]:
    return [
        _segmentation(),
        _socket_buffers(),
        *memory(),
        _bpf(),
        _processor(),
        *_kernel_devices(),
    ]


def _mib(length_bytes: int) -> str:
    return f"{length_bytes / (1 << 20):.3g} MiB"


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


def _socket_buffers() -> Finding:
    wanted = SOCKET_BUFFER_BYTES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, wanted)
            is_forced = True
        except PermissionError:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, wanted)
            is_forced = False
        # the kernel doubles what it is told, for its own needs
        given = probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    facts = {"wanted_bytes": wanted, "given_bytes": given, "is_forced": is_forced}
    if given >= wanted:
        how = "CAP_NET_ADMIN: beyond net.core.rmem_max" if is_forced else "net.core.rmem_max"
        return Finding("socket-buffers", "fine", f"{_mib(given)} ({how})", facts=facts)
    return Finding(
        "socket-buffers",
        "costs",
        f"{_mib(given)} of the {_mib(wanted)} that the device asks for",
        "packets get lost, and are sent again, when several peers send at once",
        f"sudo sysctl -w net.core.rmem_max={wanted} net.core.wmem_max={wanted}",
        facts=facts,
    )


def _bpf() -> Finding:
    cost = "no livedma capture, no livedma guard; the device works without them"
    try:
        from livedma._native.bpf import CaptureSession

        CaptureSession(rx=True, tx=False).close()
    except ImportError as error:
        fix = "sudo apt install libbpf1"
        return Finding("bpf", "costs", f"libbpf is missing ({error})", cost, fix)
    except OSError as error:
        fix = "" if os.geteuid() == 0 else "run livedma with sudo for these"
        text = f"programs cannot be loaded ({error.strerror})"
        return Finding("bpf", "costs", text, cost, fix, {"is_allowed": False})
    return Finding("bpf", "fine", "programs can be loaded", facts={"is_allowed": True})


def _processor() -> Finding:
    words = set(Path("/proc/cpuinfo").read_text().split())
    cpus = len(os.sched_getaffinity(0))
    has_multiply = bool(words & {"pclmulqdq", "pmull"})
    facts = {"cpus": cpus, "has_carryless_multiplication": has_multiply}
    if not has_multiply:
        text = "no carry-less multiplication (PCLMULQDQ, PMULL)"
        cost = "the ICRC of every packet costs about ten times as much"
        return Finding("processor", "costs", text, cost, facts=facts)
    if cpus == 1:
        text = "one CPU for all threads"
        cost = "a thread that spins takes the time of the one it waits for: perf --spin 0"
        return Finding("processor", "costs", text, cost, facts=facts)
    text = f"{cpus} CPUs with what the ICRC needs; VPCLMULQDQ and AMX are not needed"
    return Finding("processor", "fine", text, facts=facts)


def _kernel_devices() -> list[Finding]:
    """RDMA devices that the kernel knows: none is needed, and one may be in the way."""
    found = {
        path.name: _interfaces_of(path) for path in sorted(Path("/sys/class/infiniband").glob("*"))
    }
    if not found:
        return [Finding("kernel-rdma", "fine", "the kernel has no RDMA device; none is needed")]
    return [_kernel_device(name, interfaces) for name, interfaces in found.items()]


def _kernel_device(name: str, interfaces: list[str]) -> Finding:
    text = f"{name} on {', '.join(interfaces) or 'no interface'}"
    facts = {"device": name, "interfaces": interfaces}
    if name.startswith("rxe"):
        cost = "rxe keeps UDP port 4791 of every address to itself"
        return Finding("kernel-rdma", "costs", text, cost, f"sudo rdma link delete {name}", facts)
    cost = "a NIC with RoCE takes the packets to its own addresses: use others for livedma"
    return Finding("kernel-rdma", "costs", text, cost, facts=facts)


def _interfaces_of(device: Path) -> list[str]:
    names = set()
    for path in device.glob("ports/*/gid_attrs/ndevs/*"):
        try:
            names.add(path.read_text().strip())
        except OSError:  # an entry of the table that is not in use
            continue
    return sorted(names)
