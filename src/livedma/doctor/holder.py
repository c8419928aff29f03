# SPDX-License-Identifier: BSD-2-Clause
"""Processes that hold a port: their names, their users, and whether they are livedma's own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
from dataclasses import dataclass
from pathlib import Path

from livedma.memory.host.text import printable

__all__ = ["Holder", "holder_of", "user_name"]

_ACCEPTS = 0x10000  # a flag in /proc/net/unix: the socket listens


@dataclass(frozen=True)
class Holder:
    """Names a process that holds a port."""

    pid: int
    name: str
    user: str
    command: str = ""  #: livedma's command that it runs (serve, perf, …); empty: not livedma's
    control: str = ""  #: the path of its control socket, if it can be asked

    def __str__(self) -> str:
        holder = f"process {self.pid} of {self.user}"
        if self.command == "serve":
            return f"livedma's server ({holder})"
        return f"livedma {self.command} ({holder})" if self.command else f"{self.name} ({holder})"


def holder_of(pid: int) -> Holder | None:
    """Returns None if the process has ended meanwhile."""
    try:
        name = printable(Path(f"/proc/{pid}/comm").read_text().strip())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        user = user_name(os.stat(f"/proc/{pid}").st_uid)
    except OSError:
        return None
    command = _command(words)
    return Holder(pid, name, user, command, _control(pid) if command == "serve" else "")


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _command(words: list[str]) -> str:
    """Returns the command of livedma in an argument vector: `livedma serve …`, as a Python script
    or as a module; empty if there is none.
    """
    for at, word in enumerate(words[:4]):
        is_script = os.path.basename(word) == "livedma" and at <= 1
        is_module = word == "livedma.cli" and words[at - 1] == "-m"
        if is_script or is_module:
            return printable(words[at + 1]) if len(words) > at + 1 else ""
    return ""


def _control(pid: int) -> str:
    """Returns the path at which the process listens: only its control socket has one. Descriptors
    of other users cannot be seen.
    """
    inodes = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/unix").read_text(errors="replace").splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[6] in inodes and int(fields[3], 16) & _ACCEPTS:
                path = fields[7]
                if path.startswith("/") and path.isprintable():
                    return shlex.quote(path)
    return ""
