# SPDX-License-Identifier: BSD-2-Clause
"""Tells a service manager how the server is (sd_notify), if there is one that wants to know."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

__all__ = ["Notifier"]


class Notifier:
    """Sends one datagram a call to NOTIFY_SOCKET, or nothing if that is not set. A manager that
    does not listen is no reason to fail.

    watchdog_s: the server has to call `alive` so often, or the manager ends it; None: the manager
    does not watch.
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
        """Tells that the server serves, at its start and after `reloading`."""
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
