# SPDX-License-Identifier: BSD-2-Clause
"""Finds the BPF file system, in which livedma pins what outlives a command."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from livedma._native.guard import is_bpffs
from livedma.errors import LivedmaError

__all__ = ["find_bpffs", "locked", "mounted_bpffs", "remove_pins"]

_MOUNT_POINT = "/sys/fs/bpf"


def find_bpffs() -> tuple[Path, bool]:
    """Returns the file system's root and whether it had to be mounted.

    `ip netns exec` hides /sys/fs/bpf behind a /sys of its own. That one ends with the command, and
    so does what is pinned there. So the outermost view counts: that of the first ancestor whose
    root directory can be seen.
    """
    mounted = mounted_bpffs()
    if mounted is not None:
        return mounted, False
    outermost = [view for view in _views() if os.access(view + "/sys", os.X_OK)][-1:]
    if not outermost or not _same_directory("/sys", outermost[0] + "/sys"):
        raise LivedmaError(
            f"no BPF file system is mounted at {_MOUNT_POINT} outside of this namespace: "
            f"run 'mount -t bpf bpf {_MOUNT_POINT}' there"
        )
    _mount()
    return Path(_MOUNT_POINT), True


def mounted_bpffs() -> Path | None:
    """Returns the file system's root, and mounts nothing. None: it is not mounted yet."""
    visible = [view for view in _views() if is_bpffs(view + _MOUNT_POINT)]
    return Path(visible[-1] + _MOUNT_POINT) if visible else None


def _views() -> list[str]:
    return [f"/proc/{pid}/root" for pid in _ancestors()]


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid:
        yield pid
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])


def _same_directory(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.stat(one), os.stat(other))
    except OSError:
        return False


def _mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"bpf", _MOUNT_POINT.encode(), b"bpf", ctypes.c_ulong(0), None) == 0:
        return
    code = ctypes.get_errno()
    if code in (errno.ENODEV, errno.ENOENT):
        raise LivedmaError("this kernel has no BPF: boot one built with CONFIG_BPF_SYSCALL")
    raise LivedmaError(
        f"the BPF file system cannot be mounted ({os.strerror(code)}): "
        f"run 'mount -t bpf bpf {_MOUNT_POINT}' as root"
    )


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Holds the lock of the root, so that one command at a time changes what is pinned."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def remove_pins(directory: Path, root: Path) -> None:
    """Removes the directory with what is pinned in it, and the directories above it that are empty
    then.
    """
    with suppress(FileNotFoundError):
        for pin in directory.iterdir():
            pin.unlink()
    while directory != root:
        try:
            directory.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        directory = directory.parent
