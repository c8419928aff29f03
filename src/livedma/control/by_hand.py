"""What people do to a live server: each is told as an event, as what a policy does is."""

from __future__ import annotations

from livedma.control.controller import Controller
from livedma.control.plan import Extend, Shrink
from livedma.control.policies import by_name
from livedma.control.sizing import credits_for
from livedma.control.words import size
from livedma.errors import LivedmaError, NoRoomError
from livedma.monitor.snapshot import Connection, Inside

__all__ = ["ByHand"]

_FIRST_S = 5.0  # for the first snapshot


class ByHand:
    """Each says what was done. LivedmaError, ValueError: nothing was, and why."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def extend(self, connection: int, length: int) -> str:
        """Maps so many bytes more for data, with the credits that go with them."""
        found, inside = self._find(connection, length)
        if length > inside.room_bytes:  # a policy takes what there is; people want to know
            raise NoRoomError(f"its window has room for {size(inside.room_bytes)} more")
        buffers = inside.buffers + -(-length // inside.buffer_bytes)
        credits_ = credits_for(buffers, found, inside)
        return self._controller.by_hand(Extend(connection, length, credits_))

    def shrink(self, connection: int, length: int) -> str:
        """Takes so many bytes out as they become free. Credits stay: calls may have to wait."""
        _, inside = self._find(connection, length)
        return self._controller.by_hand(Shrink(connection, length, inside.credits))

    def set_policy(self, name: str) -> str:
        self._controller.policy = by_name(name)
        return f"the policy is {name}"

    def _find(self, number: int, length: int) -> tuple[Connection, Inside]:
        if type(number) is not int or type(length) is not int or length <= 0:
            raise ValueError("a connection's number, and a positive number of bytes")
        view = self._controller.view(_FIRST_S)
        found = None if view is None else view.snapshot.connection(number)
        if found is None or found.inside is None:
            raise LivedmaError(f"there is no connection {number} over RDMA")
        return found, found.inside
