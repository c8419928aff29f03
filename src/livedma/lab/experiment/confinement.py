"""Memory pressure: processes in a control group that may have so much memory and no more."""

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
        """The calling process, with all it will use from now on; its children, too."""
        (self.directory / "cgroup.procs").write_text(str(os.getpid()))


@contextmanager
def confinement(limit_bytes: int) -> Iterator[Confinement]:
    """A group with that limit, gone at the end. LeftOut where none can be made."""
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
    """A process that has just been killed may still be there for a moment."""
    end_s = time.monotonic() + _GONE_S
    while time.monotonic() < end_s:
        with contextlib.suppress(OSError):
            directory.rmdir()
            return
        time.sleep(0.01)
