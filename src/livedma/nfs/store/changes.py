"""The change attribute, and what an operation did to that of a directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

__all__ = ["ChangeInfo", "Changes", "CtimeChanges"]


class Changes(Protocol):
    """Makes change attributes of the times of the last change, which tick."""

    def value(self, device: int, inode: int, ctime_ns: int) -> int:
        """The change attribute of a file with this ctime."""

    def bump(self, device: int, inode: int, ctime_ns: int) -> int | None:
        """The file was modified, after which it has this ctime."""


class CtimeChanges:
    """The time itself: right where every change that is looked at gets a time of its own, as with
    the multigrain timestamps of Linux 6.13; else two changes within one tick are one.
    """

    def value(self, device: int, inode: int, ctime_ns: int) -> int:
        return ctime_ns

    def bump(self, device: int, inode: int, ctime_ns: int) -> None:
        """There is nothing to remember."""


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """change_info4. It is never atomic: local users may change the directory in between."""

    before: int
    after: int
