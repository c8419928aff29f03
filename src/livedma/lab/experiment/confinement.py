# SPDX-License-Identifier: BSD-2-Clause
"""Makes memory scarce: it runs processes in a control group with a memory limit."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from livedma.lab.experiment.design import LeftOut

__all__ = ["Confinement", "confinement"]

_MOUNTS = re.compile(r"^\S+ (\S+) (cgroup2?) (\S+)", re.MULTILINE)
_LIMITS = {"cgroup": "memory.limit_in_bytes", "cgroup2": "memory.max"}
_GONE_S = 5.0


class Confinement:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def enter(self) -> None:
        """Moves the calling process, its later memory and its children into the group."""
        (self.directory / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def confinement(limit_bytes: int) -> Iterator[Confinement]:
    """Makes a group with that limit; it is gone at the end. LeftOut if none can be made."""
    directory, version = _make()
    try:
        try:
            (directory / _LIMITS[version]).write_text(str(limit_bytes))
        except OSError as error:
            raise LeftOut(
                f"no memory limit can be set in {directory} ({error.strerror}): memory pressure "
                "needs the memory controller of control groups"
            ) from None
        yield Confinement(directory)
    finally:
        _remove(directory)


def _make() -> tuple[Path, str]:
    if os.geteuid():
        raise LeftOut("memory pressure needs a control group, and that needs root")
    mounts: list[tuple[str, str, str]] = _MOUNTS.findall(Path("/proc/self/mounts").read_text())
    for mount, version, options in mounts:
        if version == "cgroup" and "memory" not in options.split(","):
            continue
        directory = Path(mount) / f"livedma-{os.getpid()}"
        try:
            directory.mkdir()
        except OSError:
            continue
        if (directory / _LIMITS[version]).exists():
            return directory, version
        directory.rmdir()
    raise LeftOut(
        "memory pressure needs a control group with the memory controller, and none can be made"
    )


def _remove(directory: Path) -> None:
    """Removes the group; a process that was just killed may still be in it for a moment."""
    end_s = time.monotonic() + _GONE_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            directory.rmdir()
            return
        time.sleep(0.01)
