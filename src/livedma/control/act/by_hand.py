# SPDX-License-Identifier: BSD-2-Clause
"""Carries out what people and programs ask of a live server: the same actions as a policy's, within
the same budget, and each is told as an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from livedma.control.act.controller import Controller
from livedma.control.diagnose.limits import NOT_MANAGED
from livedma.control.faults import described
from livedma.control.policy.plan import (
    Cut,
    Extend,
    Migrate,
    RefuseSessions,
    SetCredits,
    SetSlots,
    Shrink,
    Spread,
)
from livedma.control.policy.policies import by_name
from livedma.control.policy.sizing import bytes_per_credit, credits_for
from livedma.control.words import size
from livedma.errors import LivedmaError, NoRoomError
from livedma.monitor.snapshot import Connection, Inside

__all__ = ["ByHand"]

_FIRST_S = 5.0  # time for the first snapshot to come
_NEXT_S = 1.0  # for another one
_ROUNDS = 2  # the first may have begun before the connection was made


class ByHand:
    """Has every lever of a server: the page, `livedma top`, the control socket, the commands and
    programs in Python change a server only with these methods.

    Each returns what was done, as one line, and leaves an event `hand` (`policy`: of that kind).
    Raises LivedmaError or OSError if an action fails: then nothing has changed, and an event
    `failed` tells that, too. Raises ValueError if the call makes no sense.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def extend(self, connection: int, length: int) -> str:
        """Maps `length` bytes more for data, with the credits that go with them."""
        _check(connection, length)
        with self._told("extend", connection, bytes=length):
            found, inside = self._find(connection)
            if length > inside.room_bytes:  # a policy takes what there is; people get an error
                raise NoRoomError(f"its window has room for {size(inside.room_bytes)} more")
            buffers = inside.buffers + -(-length // inside.buffer_bytes)
            credits_ = credits_for(buffers, found, inside)
            return self._controller.by_hand(Extend(connection, length, credits_))

    def shrink(self, connection: int, length: int) -> str:
        """Unmaps `length` bytes as they become free. Credits stay: calls may have to wait."""
        _check(connection, length)
        with self._told("shrink", connection, bytes=length):
            _, inside = self._find(connection)
            return self._controller.by_hand(Shrink(connection, length, inside.credits))

    def set_credits(self, connection: int, wanted: int) -> str:
        """Sets how many calls the connection's client may have under way."""
        _check(connection, wanted)
        with self._told("set_credits", connection, credits=wanted):
            self._find(connection)
            return self._controller.by_hand(SetCredits(connection, wanted))

    def set_slots(self, session: str, wanted: int) -> str:
        """Sets how many requests of a session may be under way."""
        if not isinstance(session, str) or not _is_positive(wanted):
            raise ValueError("a session's id, and a positive number of slots")
        with self._told("set_slots", None, session=session, slots=wanted):
            return self._controller.by_hand(SetSlots(session, wanted))

    def refuse_sessions(self, is_refused: bool, connection: int | None = None) -> str:
        """Refuses new sessions until they are admitted by hand, whatever the policy decides: those
        that come by a connection, over RDMA or TCP, or all (None).
        """
        if not isinstance(is_refused, bool):
            raise ValueError("refuse is true or false")
        if connection is not None:
            _check(connection)
        with self._told("refuse_sessions", connection, refuse=is_refused):
            return self._controller.by_hand(RefuseSessions(is_refused, connection))

    def spread(self, connection: int) -> str:
        """Asks the connection's client to open another one, for new sessions."""
        _check(connection)
        with self._told("spread", connection):
            self._find(connection)
            return self._controller.by_hand(Spread(connection))

    def migrate(self, connection: int, length: int, wanted: int | None = None) -> str:
        """Asks the connection's client to move all its sessions to a new one, which begins with
        `length` bytes of memory and `wanted` credits (None: what goes with the memory, as far as
        the client asks for them). If the client cannot be asked, cuts the connection, and the
        client comes back to such a one; an event tells when.
        """
        _check(connection, length, *(() if wanted is None else (wanted,)))
        with self._told("migrate", connection, bytes=length, credits=wanted):
            found, inside = self._find(connection)
            if wanted is None:
                buffers = length // (inside.buffer_bytes + bytes_per_credit(inside))
                wanted = credits_for(buffers, found, inside)
            return self._controller.by_hand(Migrate(connection, length, wanted))

    def cut(self, connection: int) -> str:
        """Cuts a connection, over RDMA or TCP; its sessions may go on with another one."""
        _check(connection)
        with self._told("cut", connection):
            return self._controller.by_hand(Cut(connection))

    def set_policy(self, name: str) -> str:
        """Lets another policy decide from now on."""
        with self._told("policy", None, name=name):
            self._controller.policy = by_name(name)
            return f"the policy is {name}"

    @contextmanager
    def _told(self, what: str, connection: int | None, **wanted: object) -> Iterator[None]:
        """Tells why an action failed as an event, and raises the error again."""
        try:
            yield
        except (LivedmaError, OSError, MemoryError) as error:
            text = f"by hand, {what}: {described(error)}; all is as it was"
            data = {"by": "hand", "do": what, **wanted}
            self._controller.events.tell("failed", text, connection=connection, data=data)
            raise

    def _find(self, number: int) -> tuple[Connection, Inside]:
        view = self._controller.view(_FIRST_S)
        found = None if view is None else view.snapshot.connection(number)
        for _ in range(_ROUNDS):
            if view is None or found is not None:
                break
            view = self._controller.view(_NEXT_S, after=view)
            found = None if view is None else view.snapshot.connection(number)
        if found is not None and found.is_tcp:
            raise LivedmaError(f"connection {number} is over TCP: {NOT_MANAGED}")
        if found is None or found.inside is None:
            raise LivedmaError(f"there is no connection {number} over RDMA")
        return found, found.inside


def _check(connection: int, *numbers: int) -> None:
    if type(connection) is not int or not all(map(_is_positive, numbers)):
        raise ValueError("a connection's number is wanted, and how much: a positive number")


def _is_positive(value: object) -> bool:
    return type(value) is int and value > 0
