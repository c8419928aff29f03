# SPDX-License-Identifier: BSD-2-Clause
"""Takes leases of the kernel (fcntl(2), F_SETLEASE): a program that opens a file, to write or at
all, waits until the server lets go of the lease.

SIGIO tells one thread of a broken lease; it takes the signal without a handler. The signal does not
say which lease, so `told` looks at all of them (`is_broken`), and signals may be merged. The same
thread can be told that another descriptor has something to read (`listen`).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["Leases"]

_log = logging.getLogger(__name__)

_F_SETOWN_EX = 15
_F_OWNER_TID = 0
_KINDS = {False: fcntl.F_RDLCK, True: fcntl.F_WRLCK}
_OWNER = struct.Struct("@ii")
_BREAK_TIME = Path("/proc/sys/fs/lease-break-time")
_BREAK_S = 45.0  # the kernel's default


class Leases:
    """Takes leases of the kernel. told: is called in the thread, with no lock held, when a lease
    may have been broken."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._is_stopping = threading.Event()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nfs-leases", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    @staticmethod
    def break_s() -> float:
        """Returns how long the kernel lets a local program wait; then it takes the lease away."""
        try:
            return float(_BREAK_TIME.read_text())
        except (OSError, ValueError):
            return _BREAK_S

    def listen(self, fd: int) -> None:
        """Has the thread told when this descriptor has something to read, too."""
        self._own(fd)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)

    def _own(self, fd: int) -> None:
        owner = _OWNER.pack(_F_OWNER_TID, self._thread.native_id or 0)
        fcntl.fcntl(fd, _F_SETOWN_EX, owner)

    def take(self, fd: int, is_sole: bool) -> bool:
        """Takes a lease: the server is told before another process writes to the file of this
        descriptor, which can only read. is_sole: it is told before another process opens the file,
        which no other descriptor has open.

        Returns False if the file is open already, the filesystem has no leases, or this process may
        not.
        """
        try:
            self._own(fd)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, _KINDS[is_sole])
        except OSError:
            return False
        return True

    @staticmethod
    def let_go(fd: int) -> None:
        """Lets programs that wait for the lease go on."""
        with contextlib.suppress(OSError):  # It may be gone by itself.
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    @staticmethod
    def is_broken(fd: int, is_sole: bool) -> bool:
        """Returns whether a program waits for it, or has waited as long as the kernel lets it."""
        return fcntl.fcntl(fd, fcntl.F_GETLEASE) != _KINDS[is_sole]

    def close(self) -> None:
        """Stops the thread."""
        self._is_stopping.set()
        assert self._thread.ident is not None
        signal.pthread_kill(self._thread.ident, signal.SIGIO)
        self._thread.join()

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        self._is_ready.set()
        while True:
            signal.sigwait({signal.SIGIO})
            if self._is_stopping.is_set():
                return
            try:
                self._told()
            except Exception:  # The thread has to tell of the next one, too.
                _log.exception("a broken lease was not seen to")
