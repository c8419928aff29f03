# SPDX-License-Identifier: BSD-2-Clause
"""Lends memory without a window: each lease is a region of its own."""

from __future__ import annotations

from livedma._native.rdma import Engine, ProtectionDomain, Region
from livedma.memory import ledger
from livedma.memory.backing import PAGE, Anonymous, Backing
from livedma.memory.lease import Lease
from livedma.memory.rounding import up


class Registrar:
    """Maps and registers memory buffer by buffer, for use when a window was refused.

    `access` is what peers may do, as for a window; `node` is where memory should come from.
    """

    def __init__(
        self,
        engine: Engine,
        *access: str,
        pd: ProtectionDomain | None = None,
        backing: Backing | None = None,
        node: int | None = None,
    ) -> None:
        self._engine, self._pd, self._node = engine, pd, node
        self._access = tuple(dict.fromkeys(("local_write", *access)))
        self.backing = backing or Anonymous()
        if self.backing.is_guarded:
            raise ValueError("memory that may vanish needs a window")

    def take(self, size: int) -> Lease:
        """Lends at least `size` bytes, in whole pages. Raises NoRoomError if there is no memory."""
        if size <= 0:
            raise ValueError("a lease has at least one byte")
        length = up(size, PAGE)
        block = self.backing.allocate(0, length, PAGE, self._node)
        region = Region(self._engine, block.mapping, self._access, pd=self._pd)
        record = ledger.record("flat")
        record.update(mapped=length, descriptors=block.descriptors, links=1)

        def give_back() -> None:
            region.close()
            block.close()
            record.remove()

        return Lease(region.key, region.va, length, block.mapping, 0, give_back)
