# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the memory of windows in its place as far as the system allows, and charges tenants."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial

from livedma._native.mapping import Mapping
from livedma.errors import BudgetError, LimitError
from livedma.memory import accounting, memlock
from livedma.memory.extents import How
from livedma.memory.guard import guard
from livedma.memory.pinning import Pin
from livedma.sizes import exact

__all__ = ["Held", "WindowPins"]

_log = logging.getLogger(__name__)

_PAGE = 4096
_RISK = "when memory is short, the kernel may page it out, and requests wait until it is back"
_RISK_LOCKED = "it stays in memory, but may be moved, which this device allows and hardware not"
_LESS: dict[How, tuple[str, str]] = {
    "locked": ("locked, but not pinned", _RISK_LOCKED),
    "unlocked": ("mapped, but not pinned", _RISK),
}


class Held:
    """Says how a part of a window is held, and to whom it is charged, until release()."""

    def __init__(self, how: How, release: Callable[[], object]) -> None:
        self.how = how
        self._release: Callable[[], object] | None = release

    def release(self) -> None:
        """Unpins the part and takes the charge back. Calling it a second time has no effect."""
        with guard:
            release, self._release = self._release, None
            if release is not None:
                release()


class WindowPins:
    """Pins the parts of windows, and charges their tenants for them. Any thread may use it.

    Where the system does not let a part be pinned, the part is used all the same and charged to its
    tenant alone. The first such part is logged, and the next one only after all of them are gone.

    limit: the bytes that a tenant may have in windows, pinned or not; None: any number. It may
    change at any time, and what is there stays. `why_not` says in a sentence why nothing is pinned
    from the start, what that risks, and how to change it; it is empty if memory is pinned.
    """

    def __init__(self, window_bytes: int, limit: int | None = None) -> None:
        """window_bytes: what one window may get; if the system's limit is lower, none is pinned."""
        self.limit = limit
        self.why_not, self._is_off = _why_not(window_bytes)
        # Parts that should be pinned, by how they are held; the guard has to be held, too.
        self._unexpected: Counter[How] = Counter()

    def check(self, tenant: Hashable, length: int) -> None:
        """Raises BudgetError if the tenant may not have `length` bytes more."""
        limit = self.limit
        taken = accounting.tenant(tenant).charged
        if limit is not None and taken + length > limit:
            raise BudgetError(
                f"{exact(length)} more would exceed what {tenant} may have pinned: "
                f"{exact(taken)} of {exact(limit)} are taken (--pin-limit)"
            )

    def hold(self, mapping: Mapping, tenant: Hashable) -> Held:
        """Pins a part that has its memory. Raises BudgetError, with nothing charged or pinned."""
        with guard:  # so that no other part takes what `check` has found
            self.check(tenant, mapping.length)
            held, why = self._held(mapping.address, mapping.length, tenant)
            if not why:
                return held
            self._unexpected[held.how] += 1
            is_first = self._unexpected[held.how] == 1
        if is_first:
            is_how, risk = _LESS[held.how]
            size = exact(mapping.length)
            _log.warning("%s of DMA memory for %s is %s: %s; %s", size, tenant, is_how, why, risk)
        return Held(held.how, partial(self._release_less, held))

    def _held(self, address: int, length: int, tenant: Hashable) -> tuple[Held, str]:
        """Holds a part as well as it can be held. Returns why it should be held better; empty: it
        should not.
        """
        why = ""
        if not self._is_off:
            try:
                pin = Pin(address, length, tenant, is_window=True)
            except (LimitError, OSError) as error:
                why = str(error)
            else:
                return Held(pin.how, pin.release), "" if self.why_not else pin.why
        charge = accounting.charge_tenant(address, address + length, tenant)
        return Held("unlocked", partial(accounting.discharge, charge)), why

    def _release_less(self, held: Held) -> None:
        held.release()
        self._unexpected[held.how] -= 1


def _why_not(needed: int) -> tuple[str, bool]:
    """Returns why windows of so many bytes are not pinned, and whether they are not held at all."""
    allowed = memlock.limit()
    if allowed is not None and needed > allowed and not memlock.is_free():
        return (
            f"DMA memory is not pinned: a connection may get {exact(needed)}, and RLIMIT_MEMLOCK "
            f"is {exact(allowed)}; {_RISK}; {memlock.remedy(needed)}"
        ), True
    probe = Mapping(_PAGE)
    try:
        with Pin(probe.address, _PAGE, is_window=True) as pin:
            if pin.how == "pinned":
                return "", False
            return (f"DMA memory is locked, not pinned: {pin.why}; {_RISK_LOCKED}"), False
    except (LimitError, OSError) as error:
        return f"DMA memory is not pinned: {error}; {_RISK}", True
    finally:
        probe.close()
