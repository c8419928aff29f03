# SPDX-License-Identifier: BSD-2-Clause
"""A source of shards over anonymous memory, of which a test says how much there is."""

from __future__ import annotations

import ctypes
import mmap

from livedma.errors import NoRoomError


class Loan:
    """Real memory that no device knows."""

    def __init__(self, lender: Lender, size: int) -> None:
        self._mapping, self._lender = mmap.mmap(-1, size), lender
        self.memory = memoryview(self._mapping)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self.va = lender.next_va
        self.lkey, self.rkey, self.length = 17, 23, size
        self.is_released = False

    def release(self) -> None:
        assert not self.is_released, "released twice"
        self.memory.release()
        self._mapping.close()  # BufferError while somebody is on it
        self.is_released = True
        self._lender.loans.remove(self)


class Lender:
    """As many loans at once as it has room for."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.loans: list[Loan] = []
        self.sizes: list[int] = []  #: of all that was ever lent
        self.refusals = 0
        self.next_va = 1 << 40

    def take(self, size: int) -> Loan:
        if len(self.loans) >= self.room:
            self.refusals += 1
            raise NoRoomError("all is lent")
        loan = Loan(self, size)
        self.loans.append(loan)
        self.sizes.append(size)
        self.next_va += 1 << 30
        return loan
