# SPDX-License-Identifier: BSD-2-Clause
"""Checks the limits on a server's open files, buffers and memory."""

from __future__ import annotations

import resource
import shlex
import socket
from collections.abc import Sequence

from livedma._native.port import SOCKET_BUFFER_BYTES
from livedma.doctor.commands import as_root, limit, sysctl, sysctl_kept, unit_setting
from livedma.doctor.finding import Finding
from livedma.memory.headroom import headroom
from livedma.memory.host import Files
from livedma.memory.host.cgroup import CgroupMemory, memory_of, mounts, place_of
from livedma.memory.host.text import size_text

__all__ = ["limits"]

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_AMPLE_FILES = 65536
_FEW_FILES = 4096
_WINDOW = 64 << 20  # the size that a connection may grow to by default
_LITTLE_MEMORY = 4 * _WINDOW


def limits(files: Files | None = None) -> Sequence[Finding]:
    return [_socket_buffers(), _open_files(), _memory(files or Files())]


def _socket_buffers() -> Finding:
    wanted = SOCKET_BUFFER_BYTES
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        received, is_forced = _buffer(probe, socket.SO_RCVBUF, _SO_RCVBUFFORCE)
        sent, _ = _buffer(probe, socket.SO_SNDBUF, _SO_SNDBUFFORCE)
    given = min(received, sent)
    facts = {
        "wanted_bytes": wanted,
        "given_bytes": received,
        "given_to_send_bytes": sent,
        "is_forced": is_forced,
    }
    if given >= wanted:
        how = "CAP_NET_ADMIN: beyond net.core.rmem_max" if is_forced else "net.core.rmem_max"
        return Finding("socket-buffers", "fine", f"{size_text(given)} ({how})", facts=facts)
    settings = {"net.core.rmem_max": wanted, "net.core.wmem_max": wanted}
    return Finding(
        "socket-buffers",
        "costs",
        f"{size_text(given)} of the {size_text(wanted)} that the device asks for",
        "packets get lost, and are sent again, when several peers send at once",
        sysctl(settings),
        facts,
        sysctl_kept(settings),
    )


def _buffer(probe: socket.socket, option: int, force: int) -> tuple[int, bool]:
    """Returns the size that the kernel gives, and whether that took privilege."""
    try:
        probe.setsockopt(socket.SOL_SOCKET, force, SOCKET_BUFFER_BYTES)
        is_forced = True
    except PermissionError:
        probe.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)
        is_forced = False
    # The kernel doubles the size it is given, for its own needs.
    return probe.getsockopt(socket.SOL_SOCKET, option) // 2, is_forced


def _open_files() -> Finding:
    """Checks the hard limit: the server raises its own limit up to that."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts = {"hard": hard}
    if hard >= _FEW_FILES:
        return Finding("open-files", "fine", f"up to {hard:,} (RLIMIT_NOFILE)", facts=facts)
    return Finding(
        "open-files",
        "costs",
        f"up to {hard:,} (RLIMIT_NOFILE)",
        f"clients have about {max(16, (hard - min(256, hard // 2)) // 2):,} files open at a time; "
        "a client that wants more is told to wait",
        limit("nofile", _AMPLE_FILES),
        facts,
        unit_setting("LimitNOFILE", _AMPLE_FILES),
    )


def _memory(files: Files) -> Finding:
    room, group = headroom(files.root), _cgroup(files)
    facts = {
        "free_bytes": room.free,
        "limit": room.limit,
        "cgroup": group.path if group else None,
        "cgroup_max_bytes": group.limit if group else None,
        "cgroup_used_bytes": group.used if group else None,
    }
    text = f"{size_text(room.free)} more can be had: {room.limit} sets the limit"
    if room.free >= _LITTLE_MEMORY:
        return Finding("memory", "fine", text, facts=facts)
    return Finding(
        "memory",
        "costs",
        text,
        f"{room.free // _WINDOW} connections can grow to a window of {size_text(_WINDOW)}; "
        "more is refused",
        _more(group) if group and group.limit is not None and "memory." in room.limit else "",
        facts,
    )


def _cgroup(files: Files) -> CgroupMemory | None:
    place = place_of(files.text("proc/self/cgroup"))
    return memory_of(files, place, mounts(files.text("proc/self/mountinfo"))) if place else None


def _more(group: CgroupMemory) -> str:
    name = "memory.max" if group.version == 2 else "memory.limit_in_bytes"
    file = f"{group.directory}/{name}"
    tee = as_root(f"tee {shlex.quote(file)}")
    return f"echo {group.used + 2 * _LITTLE_MEMORY} | {tee}" if file.isprintable() else ""
