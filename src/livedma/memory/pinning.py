# SPDX-License-Identifier: BSD-2-Clause
"""Pins memory: keeps it in its place and from children, charges it, and counts overlapping pins."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Hashable
from dataclasses import dataclass
from functools import partial
from typing import Self

from livedma._native import pinning as native
from livedma.errors import LimitError
from livedma.memory import accounting, ledger, memlock
from livedma.memory.accounting import Charge
from livedma.memory.coverage import Coverage, Range
from livedma.memory.extents import Extents, How
from livedma.memory.guard import guard
from livedma.memory.rounding import up
from livedma.sizes import exact

_PAGE = mmap.PAGESIZE


@dataclass(frozen=True)
class _Taken:
    """Records what one pin has taken."""

    charge: Charge
    inner: Range
    record: ledger.Record | None  # None: the ledger has it as a part of a window


class _Holdings:
    """Keeps what one process holds. The guard must be held around every call."""

    def __init__(self) -> None:
        self.extents = Extents()
        self._private = Coverage()
        self.are_a_parents = False

    def take(
        self, start: int, end: int, inner: Range, tenant: Hashable, *, is_listed: bool
    ) -> _Taken:
        """Charges and holds a range, and keeps `inner` from children: all of it, or nothing."""
        charge = accounting.charge(start, end, tenant)
        held: list[Range] = []
        private: list[Range] = []
        try:
            for start, end in charge.fresh:
                self.extents.hold(start, end)
                held.append((start, end))
            for start, end in self._private.add(*inner):
                private.append((start, end))
                native.keep_from_children(start, end - start)
        except BaseException as error:
            if private:
                self._private.remove(*inner)
            self._undo(held, private)
            accounting.discharge(charge)
            if isinstance(error, OSError):
                raise _explained(error, charge) from None
            raise
        if not is_listed:
            return _Taken(charge, inner, None)
        size = charge.end - charge.start
        record = ledger.record("pinned", _PAGE, tenant="" if tenant is None else str(tenant))
        is_pinned = self.extents.state(charge.start, charge.end)[0] == "pinned"
        record.update(
            mapped=size, descriptors=size // _PAGE, links=1, pinned=size if is_pinned else 0
        )
        return _Taken(charge, inner, record)

    def give_back(self, taken: _Taken) -> None:
        if not self.are_a_parents:
            self._undo(accounting.discharge(taken.charge), self._private.remove(*taken.inner))
            if taken.record is not None:
                taken.record.remove()

    def _undo(self, held: list[Range], private: list[Range]) -> None:
        for start, end in private:
            native.give_to_children(start, end - start)
        for start, end in held:
            self.extents.drop(start, end)


_holdings = _Holdings()


def _begin_as_child() -> None:
    global _holdings
    _holdings.are_a_parents = True
    _holdings = _Holdings()


os.register_at_fork(after_in_child=_begin_as_child)


class Pin:
    """Keeps memory where it is until release(). A pin holds nothing in a child of fork."""

    def __init__(
        self, address: int, length: int, tenant: Hashable = None, *, is_window: bool = False
    ) -> None:
        """is_window: the memory is a window's, which the ledger lists and no child gets."""
        self.address, self.length, self.tenant = address, length, tenant
        self._taken: _Taken | None = None
        if address < 0 or length < 0 or address + length > 1 << 64:
            raise ValueError("that range is not in the address space")
        start = address - address % _PAGE
        end = up(address + length, _PAGE) if length else start
        # Only whole pages are kept from children. The pages at the edges may also hold what every
        # child needs, such as objects of the interpreter: without them it would crash. These pages
        # stay in place all the same, since fork gives the child a copy of a page that is pinned.
        inner = up(address, _PAGE), (address + length) // _PAGE * _PAGE
        if is_window:
            inner = start, start
        with guard:
            self._holdings = _holdings
            self._taken = _holdings.take(start, end, inner, tenant, is_listed=not is_window)

    @property
    def how(self) -> How:
        """Returns how it is held: pinned; locked, where the kernel would not pin it; unlocked,
        after release().
        """
        return self._state()[0]

    @property
    def why(self) -> str:
        """Returns why it is not pinned; empty if it is."""
        return self._state()[1]

    def _state(self) -> tuple[How, str]:
        with guard:
            if self._taken is None:
                return "unlocked", "it was released"
            if self._holdings.are_a_parents:
                return "unlocked", "it is the parent's: nothing is pinned in a child of fork"
            charge = self._taken.charge
            return self._holdings.extents.state(charge.start, charge.end)

    def release(self) -> None:
        """Gives back what no other pin needs. Calling it a second time has no effect."""
        with guard:
            taken, self._taken = self._taken, None
            if taken is not None:
                self._holdings.give_back(taken)

    def __del__(self) -> None:
        if self._taken is not None:
            guard.later(partial(self._holdings.give_back, self._taken))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def pin(address: int, length: int, tenant: Hashable = None) -> Pin:
    """Pins memory of this process, which must stay mapped until the pin is released.

    Raises BudgetError or LimitError, which say what to do, or OSError if the range is not all
    memory. Then nothing is pinned or charged.
    """
    return Pin(address, length, tenant)


def _explained(error: OSError, charge: Charge) -> LimitError | OSError:
    """Explains for people why memory could not be held. The charge is taken back already."""
    asked = charge.end - charge.start
    not_pinned = error.__cause__
    if not isinstance(not_pinned, OSError):
        return LimitError(
            f"cannot keep {exact(asked)} from children ({error.strerror}): has the "
            "process more mappings than vm.max_map_count allows? `sysctl vm.max_map_count` tells"
        )
    if not_pinned.errno == errno.EFAULT and not memlock.explains(asked):
        return OSError(errno.EFAULT, f"not all is writable memory from 0x{charge.start:x} on")
    return memlock.refused(asked, accounting.process().charged, error.strerror or str(error))
