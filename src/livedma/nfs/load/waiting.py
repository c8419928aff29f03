# SPDX-License-Identifier: BSD-2-Clause
"""Tells the user why a run waits for its server, and ends what need not wait any longer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine

from livedma._native.load import Load
from livedma.nfs.client import Client
from livedma.nfs.load.places import Places
from livedma.nfs.load.recovery import Recovery
from livedma.nfs.load.sessions import LoadError
from livedma.nfs.numbers import Status

__all__ = ["Waiting"]

_LOOK_S = 0.02
_SILENT_S = 1.5  # that a server may take before the user is told
_S = 1e-9


class Waiting:
    """Waits for the server of a run. name: of the server; tell: is called with why it waits."""

    def __init__(
        self,
        name: str,
        client: Client,
        load: Load,
        places: Places,
        recovery: Recovery,
        tell: Callable[[str], None],
    ) -> None:
        self._name, self._identity = name, client.identity
        self._load, self._places, self._recovery = load, places, recovery
        self._tell = tell

    def check(self) -> None:
        """Raises LoadError if the server did not come back in time."""
        if self._recovery.words:
            raise LoadError(self._recovery.words)

    def look(self, otherwise: str = "") -> None:
        """Tells that the server lets the run wait, or else what `otherwise` says."""
        heard_s = max(self._load.heard_ns() * _S, self._identity.heard_s)
        silent_s = time.monotonic() - heard_s
        if self._identity.deferred == Status.GRACE and not self._places.is_lost:
            self._tell(f"{self._name} has restarted: waiting for the end of its grace period")
        elif silent_s > _SILENT_S:
            self._tell(f"{self._name} has not answered for {silent_s:.0f} s")
        elif otherwise:
            self._tell(otherwise)

    async def during(self, work: Coroutine[None, None, None], progress: Callable[[], str]) -> None:
        """Does the work, and tells its progress meanwhile. Raises LoadError as `check` does."""
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
                self.check()
                self.look(progress())
            task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def while_reached(self, work: Coroutine[None, None, None]) -> None:
        """Does the work, or stops it as soon as no connection works any more."""
        task = asyncio.create_task(work)
        try:
            while not self._places.is_lost and not task.done():
                await asyncio.wait({task}, timeout=_LOOK_S)
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
