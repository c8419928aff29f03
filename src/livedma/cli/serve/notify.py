"""What a service manager is told (sd_notify), where there is one that wants to know."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

__all__ = ["Notifier"]


class Notifier:
    """Each call is one datagram to NOTIFY_SOCKET, or nothing. A manager that does not listen is no
    reason to fail.

    watchdog_s: so often `alive` has to be called, or the manager ends the server; None: it does
    not watch.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_s: float | None = None
        limit_us = environment.get("WATCHDOG_USEC", "")
        is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if self._address and is_ours and limit_us.isdecimal() and int(limit_us):
            self.watchdog_s = int(limit_us) / 1e6 / 2

    def ready(self, status: str) -> None:
        """It serves; also after `reloading`."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        self._tell("STOPPING=1", "STATUS=ending")

    def alive(self) -> None:
        self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.sendto("\n".join(line.replace("\n", " ") for line in lines).encode(), self._address)
