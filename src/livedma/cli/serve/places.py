# SPDX-License-Identifier: BSD-2-Clause
"""Says where a server has its control socket by default, and where other commands look for it.

A server takes the first place that this user has. A new login session, a service and `su` differ in
their environment, so commands look into all places.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "RUN",
    "SERVICES",
    "SHARED",
    "control_directories",
    "control_directory",
    "default_control",
    "make_control_directory",
    "of_other_users",
]

RUN = Path("/run")
SERVICES = RUN / "livedma"  #: the unit file's RuntimeDirectory
SHARED = Path("/tmp")  #: every user can write there, so a directory in it has to be verified
_NAME = "livedma"


def control_directories() -> list[Path]:
    """Returns where this user's servers may have control sockets, the preferred place first."""
    found = [base / _NAME for base in _bases()]
    found.append(SERVICES if os.geteuid() == 0 else SHARED / f"{_NAME}-{os.geteuid()}")
    return list(dict.fromkeys(found))


def control_directory() -> Path:
    """Returns the directory in which a server that this user starts now has its control socket."""
    return control_directories()[0]


def default_control() -> Path:
    """Returns the control socket of this process, unless --control names another one."""
    return control_directory() / f"serve-{os.getpid()}"


def make_control_directory() -> None:
    """Makes the directory of `default_control`, and removes what killed servers left in it.

    Raises LivedmaError if another user has it or if it cannot be made.
    """
    from livedma.errors import LivedmaError
    from livedma.nfs.server.private_directory import make_private

    directory = control_directory()
    if directory == SERVICES:  # only root can make it, and the service's user may own it
        directory.mkdir(mode=0o755, exist_ok=True)
    else:
        try:
            make_private(directory)
        except LivedmaError as error:
            hint = "name another place for the control socket with --control PATH"
            raise LivedmaError(f"{error}; {hint}") from None
    _remove_left(directory)


def _remove_left(directory: Path) -> None:
    """Removes sockets and tokens of processes that are gone. A socket at which a server listens is
    one of another PID namespace.
    """
    from livedma.nfs.control import is_answered

    for path in directory.glob("serve-*"):
        found = re.fullmatch(r"serve-(\d+)(\.token)?", path.name)
        if found is None or _is_alive(int(found[1])) or is_answered(path.with_suffix("")):
            continue
        with contextlib.suppress(OSError):
            path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def of_other_users() -> Iterator[Path]:
    """Yields where servers of other users have their control sockets, for root to look at."""
    yield SERVICES
    for directory in sorted((RUN / "user").glob(f"*/{_NAME}")):
        if _is_of(directory, directory.parent.name):
            yield directory
    for directory in sorted(SHARED.glob(f"{_NAME}-*")):
        if _is_of(directory, directory.name.removeprefix(f"{_NAME}-")):
            yield directory


def _is_of(directory: Path, uid: str) -> bool:
    try:
        return str(os.lstat(directory).st_uid) == uid
    except OSError:
        return False


def _bases() -> Iterator[Path]:
    """Yields directories that the system made for this user alone, for as long as it is up."""
    from livedma.nfs.server.private_directory import is_private

    named = os.environ.get("XDG_RUNTIME_DIR", "")
    # `su` hands on another user's variable; the specification says to ignore a relative path.
    if os.path.isabs(named) and is_private(Path(named)):
        yield Path(named)
    own = RUN / "user" / str(os.geteuid())
    if is_private(own):
        yield own
