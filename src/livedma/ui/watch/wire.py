# SPDX-License-Identifier: BSD-2-Clause
"""Makes the wire a source of snapshots: BPF at the interfaces of this host (docs/monitor.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from livedma.errors import PrivilegeError
from livedma.monitor import Monitor, MonitorError, Snapshot
from livedma.ui.watch.interfaces import chosen, offloading
from livedma.wire.words import amount

__all__ = ["WireSource"]


class WireSource:
    """Watches RPC-over-RDMA that passes these interfaces; none named: those that may carry it.

    ports: those at which servers listen, for connections that are made from now on.
    """

    name = "wire"

    def __init__(self, interfaces: Sequence[str] = (), ports: Sequence[int] = (20049,)) -> None:
        self._wanted, self._ports = list(interfaces), tuple(ports)
        self._interfaces: list[str] = []
        self._monitor: Monitor | None = None
        self._since_s = 0.0

    def attach(self) -> None:
        if self._monitor is not None:
            self._monitor.attach()
            return
        self._interfaces = self._wanted or chosen()
        try:
            self._monitor = Monitor(self._interfaces, self._ports)
        except MonitorError as error:
            if isinstance(error.__cause__, PermissionError) and os.geteuid():
                raise PrivilegeError(
                    "watching the wire loads BPF programs, which needs root (CAP_BPF, "
                    "CAP_NET_ADMIN and CAP_PERFMON)"
                ) from None
            raise
        self._since_s = time.time()

    @property
    def _opened(self) -> Monitor:
        if self._monitor is None:
            raise ValueError("the source is not attached")
        return self._monitor

    @property
    def is_attached(self) -> bool:
        return self._monitor is not None and self._monitor.is_attached

    @property
    def where(self) -> str:
        return ", ".join(self._interfaces)

    def snapshot(self) -> Snapshot:
        return self._opened.snapshot()

    def unseen(self) -> Sequence[str]:
        found = [
            f"{device} on {interface} is an RDMA NIC: what it offloads passes no hook"
            for device, interface in offloading(self._interfaces)
        ]
        strangers = self._opened.strangers()
        if strangers:
            verb = "is" if strangers == 1 else "are"
            found.append(
                f"{amount(strangers, 'connection')} {verb} there that this has not learnt yet: a "
                "connection that was made before tells itself by two answered calls of a session, "
                "or four without one"
            )
        return found

    def close(self) -> None:
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
