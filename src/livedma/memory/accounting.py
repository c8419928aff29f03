# SPDX-License-Identifier: BSD-2-Clause
"""Charges the process and its tenants for memory that is kept in its place, within their budgets.

The process is charged for every page once, however many regions lie over it. Every tenant (a
session, a client) is charged once for every page of its own regions.
"""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from livedma.errors import BudgetError
from livedma.memory import memlock
from livedma.memory.coverage import Coverage, Range
from livedma.memory.guard import guard
from livedma.sizes import exact


class Budget:
    """Bounds and counts what the process or a tenant has. A limit below what is charged already
    stops only new charges.

    charge() and discharge() are for this module, under the guard.
    """

    def __init__(self, limit: int | None = None, *, owner: str = "it", remedy: str = "") -> None:
        self._limit = limit
        self._owner, self._remedy = owner, remedy
        self._coverage = Coverage()

    @property
    def limit(self) -> int | None:
        """Returns the limit in bytes; None: only the system's applies."""
        return self._limit

    @limit.setter
    def limit(self, limit: int | None) -> None:
        if limit is not None and limit < 0:
            raise ValueError("a budget is not negative")
        with guard:
            self._limit = limit
            self._changed()

    @property
    def charged(self) -> int:
        """Returns the bytes that are charged, in whole pages."""
        return self._coverage.size

    def charge(self, start: int, end: int) -> list[Range]:
        """Charges a range, and returns the parts of it that were not charged before. If it raises
        BudgetError, it has charged nothing.
        """
        before = self.charged
        fresh = self._coverage.add(start, end)
        if self._limit is not None and before < self.charged > self._limit:
            more = self.charged - before
            self._coverage.remove(start, end)
            raise BudgetError(
                f"cannot pin {exact(end - start)} for {self._owner}: of its budget of "
                f"{exact(self._limit)}, {exact(before)} are taken, and {exact(more)} more would "
                f"be; {self._remedy}"
            )
        self._changed()
        return fresh

    def discharge(self, start: int, end: int) -> list[Range]:
        """Takes a range back, and returns the parts of it that are no longer charged."""
        released = self._coverage.remove(start, end)
        self._changed()
        return released

    def forget(self) -> None:
        """Forgets all charges, in a child of fork: it has the limits of its parent, but nothing is
        pinned for it.
        """
        self._coverage = Coverage()
        self._changed()

    def _changed(self) -> None:
        pass


class _Tenant(Budget):
    """Holds the budget of a tenant. It is kept only while it has a limit or is charged, since
    tenants may come and go all the time.
    """

    def __init__(self, name: Hashable) -> None:
        super().__init__(
            owner=f"the tenant {name!r}",
            remedy=f"livedma.memory.tenant({name!r}).limit = BYTES sets it",
        )

    def _changed(self) -> None:
        if self.limit is not None or self.charged:
            _retained.add(self)
        else:
            _retained.discard(self)


@dataclass(frozen=True)
class Charge:
    """Records a range that the process, and perhaps a tenant, is charged for."""

    start: int
    end: int
    tenant: Budget | None
    fresh: list[Range]  # the parts that the process was not charged for before
    is_of_process: bool = True  # else the tenant alone is charged


_process = Budget(owner="the process", remedy="livedma.memory.budget(BYTES) sets it")
_tenants: WeakValueDictionary[Hashable, _Tenant] = WeakValueDictionary()
_retained: set[_Tenant] = set()


def process() -> Budget:
    return _process


def budget(limit: int | None) -> Budget:
    """Limits what the process may have pinned, in bytes; None: only the system limits it."""
    _process.limit = limit
    return _process


def tenant(name: Hashable) -> Budget:
    """Returns the budget of a tenant; a new one has no limit."""
    with guard:
        found = _tenants.get(name)
        if found is None:
            found = _tenants[name] = _Tenant(name)
        return found


def charge_tenant(start: int, end: int, owner: Hashable) -> Charge:
    """Charges whole pages to a tenant alone: they are its own, but nothing pins them."""
    with guard:
        account = tenant(owner)
        account.charge(start, end)
        return Charge(start, end, account, [], is_of_process=False)


def charge(start: int, end: int, owner: Hashable = None) -> Charge:
    """Charges whole pages to the process and, unless None, to a tenant.

    Raises BudgetError, or LimitError for RLIMIT_MEMLOCK; then neither is charged.
    """
    with guard:
        account = None if owner is None else tenant(owner)
        before = _process.charged
        fresh = _process.charge(start, end)
        try:
            if fresh:
                memlock.check(end - start, _process.charged - before, before)
            if account is not None:
                account.charge(start, end)
        except BaseException:
            _process.discharge(start, end)
            raise
        return Charge(start, end, account, fresh)


def discharge(charged: Charge) -> list[Range]:
    """Takes a charge back. Returns what the process is no longer charged for."""
    with guard:
        if charged.tenant is not None:
            charged.tenant.discharge(charged.start, charged.end)
        if not charged.is_of_process:
            return []
        return _process.discharge(charged.start, charged.end)


def _forget_all() -> None:
    for account in (_process, *_tenants.values()):
        account.forget()


os.register_at_fork(after_in_child=_forget_all)
