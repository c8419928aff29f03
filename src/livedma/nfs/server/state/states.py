# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the table of states that stateids name, and says what makes a stateid wrong (RFC 8881,
8.2.4)."""

from __future__ import annotations

import secrets
from typing import Generic, Protocol, TypeVar

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.stateid import SEQID_MOST, Stateid

__all__ = ["State", "States", "Versioned"]

_BOOT_BYTES = 4
_NUMBER_BYTES = 8
_HALF = 1 << 31


class State(Protocol):
    """Describes what the table holds."""

    other: bytes
    seqid: int
    is_revoked: bool

    @property
    def client_number(self) -> int:
        """Returns the client ID that it belongs to."""


class Versioned:
    """Has a name, and a version that changes with the state; all kinds of states have both.

    is_revoked: it was taken away, and its client has not yet said that it knows.
    """

    def __init__(self, other: bytes) -> None:
        self.other = other
        self.seqid = 0
        self.is_revoked = False

    @property
    def stateid(self) -> Stateid:
        """Returns the stateid as a client gets it."""
        return Stateid(self.seqid, self.other)

    def change(self) -> None:
        """Counts the version up; it is never 0, which means the latest."""
        self.seqid = self.seqid % SEQID_MOST + 1


S = TypeVar("S", bound=State)


class States(Generic[S]):
    """Finds states by name. A name is the server's instance and 64 random bits: it cannot be
    guessed."""

    def __init__(self, boot: int) -> None:
        self._boot = (boot & 0xFFFFFFFF).to_bytes(_BOOT_BYTES, "big")
        self._states: dict[bytes, S] = {}

    def __len__(self) -> int:
        return len(self._states)

    def new_name(self) -> bytes:
        """Returns a name that no state has, and that is not special."""
        while True:
            other = self._boot + secrets.token_bytes(_NUMBER_BYTES)
            if other not in self._states and not Stateid(0, other).is_special:
                return other

    def add(self, state: S) -> None:
        """Adds a state, which its name finds from now on."""
        self._states[state.other] = state

    def remove(self, state: S) -> None:
        """Removes a state; its name never finds anything again."""
        del self._states[state.other]

    def has(self, state: S) -> bool:
        """Returns whether it was added and not removed since."""
        return self._states.get(state.other) is state

    def find(self, stateid: Stateid, client_number: int) -> S:
        """Returns the state that a client means; raises DELEG_REVOKED if it was taken away."""
        state = self.find_any(stateid, client_number)
        if state.is_revoked:
            raise NfsError(Status.DELEG_REVOKED)
        return state

    def find_any(self, stateid: Stateid, client_number: int) -> S:
        """Finds a state as `find` does, also a revoked one.

        Names from earlier instances of the server are BAD_STATEID as well: in 4.1 the session tells
        a client of the restart (15.1.16.5).
        """
        state = self._states.get(stateid.other)
        if state is None or state.client_number != client_number:
            raise NfsError(Status.BAD_STATEID)
        if stateid.seqid and stateid.seqid != state.seqid:
            is_old = (state.seqid - stateid.seqid) % (1 << 32) < _HALF
            raise NfsError(Status.OLD_STATEID if is_old else Status.BAD_STATEID)
        return state
