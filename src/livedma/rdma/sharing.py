# SPDX-License-Identifier: BSD-2-Clause
"""Lets several processes share one address: each has a slot, and a BPF program brings it its
packets.

What they share is pinned in the BPF file system, in a directory per network namespace and address.
The last process to leave removes it; the next one to join removes what killed processes left.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address
from pathlib import Path

from livedma._native.share import PIN, ShareSession
from livedma.bpffs import find_bpffs, remove_pins
from livedma.errors import LivedmaError, PrivilegeError
from livedma.privilege import may_share
from livedma.wire.private import service_id

ROCE_PORT = 4791
NEEDS = "sharing an address between processes needs CAP_BPF and CAP_NET_ADMIN"
OTHERS = "what devices share in /sys/fs/bpf/livedma is another user's"


class Place:
    """Holds this process's place at an address."""

    def __init__(self, root_fd: int, directory: Path, session: ShareSession) -> None:
        self.session = session
        self._root_fd = root_fd
        self._directory = directory
        self._pid = os.getpid()

    def claim(self, port: int, space: str) -> None:
        """Claims a port. Raises OSError (EADDRINUSE) if another process has it."""
        with _locked(self._directory.parent):
            self.session.claim(service_id(port, space))

    def release(self, port: int, space: str) -> None:
        with _locked(self._directory.parent):
            self.session.release(service_id(port, space))

    def leave(self) -> None:
        """Gives the place back. In a forked child it does nothing: the place is the parent's."""
        if os.getpid() == self._pid:
            with _locked(self._directory.parent):
                self.vacate()
            os.close(self._root_fd)

    def vacate(self) -> None:
        """Gives the place back for a caller that holds the lock and keeps the descriptor."""
        if not self.session.leave():
            remove_pins(self._directory, _path(self._root_fd))
        self.session.close()


@contextmanager
def joining(address: str, interface: int, scope: int = 0) -> Iterator[Place]:
    """Yields a place for the device that the block opens; an error in the block gives it back.

    Raises LivedmaError with the reason that forbids sharing, or OSError (EADDRINUSE) if a process
    has the address that does not share it.
    """
    if not may_share():
        raise PrivilegeError(NEEDS)
    # A descriptor, as the path may lead through /proc of a process that ends before this one.
    root_fd = os.open(find_bpffs()[0], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    packed = ip_address(address).packed
    namespace = os.stat("/proc/thread-self/ns/net").st_ino
    home = _path(root_fd) / "livedma" / "share"
    directory = home / f"{namespace}-{packed.hex()}-{scope}"
    with ExitStack() as lock, ExitStack() as failure:
        failure.callback(os.close, root_fd)
        try:
            lock.enter_context(_locked(home))
            _sweep(home)
            session = _find(directory, packed, interface)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EROFS):
                raise LivedmaError(OTHERS) from None
            if error.errno in (errno.EPERM, errno.ENOSYS):
                raise _refusal(error) from None
            raise
        if session is None:
            _require_free(address, scope)
            session = _start(directory, packed, interface)
        place = Place(root_fd, directory, session)
        failure.callback(place.vacate)
        yield place
        failure.pop_all()


def _path(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}")


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Lets one process at a time join, claim or leave. The directory is removed once empty."""
    while True:
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process removes it
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still(home, fd):
                yield
                return
        finally:
            os.close(fd)


def _is_still(home: Path, fd: int) -> bool:
    try:
        return os.path.samestat(os.stat(home), os.fstat(fd))
    except FileNotFoundError:
        return False


def _find(directory: Path, packed: bytes, interface: int) -> ShareSession | None:
    try:
        return ShareSession.open(str(directory), packed, interface)
    except FileNotFoundError:
        if not _is_foreign(directory):
            return None
    raise LivedmaError(
        "another version of livedma shares the address: use one version or another address"
    )


def _require_free(address: str, scope: int) -> None:
    """Raises OSError (EADDRINUSE) if a process has the address without being one of ours.

    It binds a socket that wants the address for itself. The other process may be in another
    container, which pins elsewhere.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    where = (address, ROCE_PORT, 0, scope) if ":" in address else (address, ROCE_PORT)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind(where)


def _start(directory: Path, packed: bytes, interface: int) -> ShareSession:
    try:
        directory.mkdir(mode=0o700)
        return ShareSession.start(str(directory), packed, interface)
    except OSError as error:
        remove_pins(directory, directory.parent)
        raise _refusal(error) from error


def _refusal(error: OSError) -> LivedmaError:
    """Makes the error for a failure that forbids sharing, but not a device without it."""
    if error.filename is not None:  # not a system call of BPF: one on a directory failed
        return LivedmaError(OTHERS)
    if error.errno in (errno.EPERM, errno.EACCES):
        return PrivilegeError(NEEDS)
    return LivedmaError(
        f"the kernel does not take the programs that share an address ({error.strerror})"
    )


def _is_foreign(directory: Path) -> bool:
    return any(pin.name.startswith(PIN.partition("-")[0]) for pin in directory.glob("*"))


def _sweep(home: Path) -> None:
    """Removes what processes left that were killed, perhaps while they started."""
    for directory in list(home.iterdir()):
        try:
            session = ShareSession.open(str(directory))
        except FileNotFoundError:
            if not _is_foreign(directory):
                remove_pins(directory, home)
            continue
        if not session.count:
            remove_pins(directory, home)
        session.close()
