"""Leases of the kernel (fcntl(2), F_SETLEASE): who opens a file waits until we let go, if it is to
write, or at all.

A broken lease is told by SIGIO to one thread, which takes it without a handler. It says not which
lease: whoever is told looks at those that it has (`is_broken`), so that signals may be merged.
The same thread can be told that any other descriptor has something to read (`listen`).
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
    """told: is called in the thread when a lease may have been broken, with nothing held."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told
        self._is_stopping = threading.Event()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nfs-leases", daemon=True)
        self._thread.start()
        self._is_ready.wait()

    @staticmethod
    def break_s() -> float:
        """How long the kernel lets a local program wait; then it takes the lease away."""
        try:
            return float(_BREAK_TIME.read_text())
        except (OSError, ValueError):
            return _BREAK_S

    def listen(self, fd: int) -> None:
        """Has the thread told of what comes by this descriptor, too."""
        self._own(fd)
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)

    def _own(self, fd: int) -> None:
        owner = _OWNER.pack(_F_OWNER_TID, self._thread.native_id or 0)
        fcntl.fcntl(fd, _F_SETOWN_EX, owner)

    def take(self, fd: int, is_sole: bool) -> bool:
        """Nobody writes to the file of this descriptor, which can read alone, or it is told.
        is_sole: nobody opens the file, which this descriptor alone has open.

        False: somebody has it open, the filesystem has no leases, or we may not.
        """
        try:
            self._own(fd)
            fcntl.fcntl(fd, fcntl.F_SETLEASE, _KINDS[is_sole])
        except OSError:
            return False
        return True

    @staticmethod
    def let_go(fd: int) -> None:
        """Who waits for the lease goes on."""
        with contextlib.suppress(OSError):  # It may be gone by itself.
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)

    @staticmethod
    def is_broken(fd: int, is_sole: bool) -> bool:
        """Somebody waits for it, or has waited for long enough."""
        return fcntl.fcntl(fd, fcntl.F_GETLEASE) != _KINDS[is_sole]

    def close(self) -> None:
        """Nobody is told any more."""
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
            except Exception:  # The next one has to be told, too.
                _log.exception("a broken lease was not seen to")
