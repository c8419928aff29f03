# SPDX-License-Identifier: BSD-2-Clause
"""Makes commands that change what was found: whole lines, to be copied."""

from __future__ import annotations

import os
import pwd
import shlex
import sys
from collections.abc import Iterable, Mapping

from livedma.privilege import as_root

__all__ = [
    "as_root",
    "grant",
    "limit",
    "livedma",
    "sysctl",
    "sysctl_kept",
    "unit_setting",
]

_SYSCTL_FILE = "/etc/sysctl.d/90-livedma.conf"
_UNIT_DIRECTORY = "/etc/systemd/system/livedma.service.d"


def livedma(arguments: str) -> str:
    """Returns a command line of this livedma for a shell with another PATH, such as sudo's."""
    if os.path.basename(sys.argv[0]) == "livedma":
        return f"{shlex.quote(os.path.abspath(sys.argv[0]))} {arguments}"
    return f"{shlex.quote(sys.executable)} -m livedma {arguments}"


def sysctl(settings: Mapping[str, int]) -> str:
    return as_root(f"sysctl -w {_assignments(settings)}")


def sysctl_kept(settings: Mapping[str, int]) -> str:
    """Returns the command that keeps the settings for the next boot."""
    tee = as_root(f"tee -a {_SYSCTL_FILE}")
    return rf"printf '%s\n' {_assignments(settings)} | {tee}"


def _assignments(settings: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in settings.items())


def limit(name: str, value: int) -> str:
    """Returns a command that sets a limit of the shell it is copied into, and of its children."""
    return as_root(f"prlimit --pid $$ --{name}={value}")


def unit_setting(setting: str, value: int) -> str:
    """Returns the command for a server that systemd runs."""
    path = f"{_UNIT_DIRECTORY}/{setting.lower()}.conf"
    return (
        f"{as_root(f'mkdir -p {_UNIT_DIRECTORY}')} && "
        rf"printf '[Service]\n{setting}={value}\n' | {as_root(f'tee {path}')} && "
        f"{as_root('systemctl daemon-reload')}"
    )


def grant(capabilities: Iterable[str], arguments: str) -> str:
    """Returns a command that runs livedma as this user with capabilities that it lacks now."""
    added = ",".join(f"+{name}" for name in capabilities)
    uid, gid = os.getuid(), os.getgid()
    groups = "--init-groups" if _is_known(uid) else "--clear-groups"
    return as_root(
        f"setpriv --reuid={uid} --regid={gid} {groups} --inh-caps={added} --ambient-caps={added} "
        f"{livedma(arguments)}"
    )


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
