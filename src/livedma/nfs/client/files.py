# SPDX-License-Identifier: BSD-2-Clause
"""Offers files by their paths, for a `Client` and each `Session`.

Paths are relative to the root of what the server exports. Symbolic links are not followed.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from livedma.nfs.client.attributes import STAT, STATFS, Entry, FileSystem, Stat, settable
from livedma.nfs.client.codec import directory as codec
from livedma.nfs.client.codec import open as open_codec
from livedma.nfs.client.codec import xattr
from livedma.nfs.client.codec.attribute import Time, getattr_of, setattr_of
from livedma.nfs.client.codec.handle import access, getfh, putfh, savefh
from livedma.nfs.client.errors import BadReply
from livedma.nfs.client.file import File
from livedma.nfs.client.opens import OpenState
from livedma.nfs.client.operation import Operation, Results
from livedma.nfs.client.paths import names_of, parent_of, walk
from livedma.nfs.numbers import (
    SHARE_BOTH,
    SHARE_READ,
    SHARE_WRITE,
    Attribute,
    CreateMode,
    FileType,
    XattrOption,
)
from livedma.nfs.stateid import ANONYMOUS
from livedma.opening import enterable

if TYPE_CHECKING:
    from livedma.nfs.client.session import Session

__all__ = ["Files"]

_PAGE_BYTES = 65536
_OTHERS = 8  # operations beside the lookups of a path
_SHARES = {"": 0, "r": SHARE_READ, "w": SHARE_WRITE, "rw": SHARE_BOTH}

Rights = Literal["", "r", "w", "rw"]


class Files(ABC):
    """Offers all operations on names; each is one COMPOUND unless its path is very long."""

    @property
    @abstractmethod
    def through(self) -> Session:
        """Is the session that makes the calls."""

    @enterable
    async def open(
        self,
        path: str,
        access: Rights = "r",
        *,
        deny: Rights = "",
        create: bool = False,
        exclusive: bool = False,
        truncate: bool = False,
        mode: int = 0o644,
    ) -> File:
        """Opens an ordinary file: awaited, or entered by `async with`.

        create: makes it if it does not exist; exclusive: and fails if it does. truncate: cuts one
        that exists to no bytes. deny: what other openers must not do with it meanwhile.
        """
        session = self.through
        names, name = parent_of(path)
        creation: CreateMode | None = None
        if exclusive:
            creation = CreateMode.EXCLUSIVE_1
        elif create:
            creation = CreateMode.UNCHECKED
        values = settable(mode=mode, size=0 if truncate and not exclusive else None)
        owner, verifier = secrets.token_bytes(16), secrets.token_bytes(8)
        share = open_codec.Share(_SHARES[access], _SHARES[deny], session.identity.client_id, owner)
        opening = open_codec.open_name(share, name, creation, values, verifier)
        handle = getfh()
        done = await self._at(names, opening, handle, path=path)
        opened = done[opening]
        state = OpenState(path, done[handle], share.access, share.deny, owner, opened.stateid)
        session.identity.opens.add(state)
        file = File(session, state)
        if opened.delegation is not None:
            back = open_codec.delegreturn(opened.delegation)
            await session.compound(putfh(file.handle), back, path=path)
        if truncate and creation is None:
            await file.truncate(0)
        return file

    async def stat(self, path: str) -> Stat:
        get = getattr_of(STAT)
        values = (await self._at(names_of(path), get, path=path))[get]
        return Stat.of(values)

    async def statfs(self, path: str = "/") -> FileSystem:
        get = getattr_of(STATFS)
        values = (await self._at(names_of(path), get, path=path))[get]
        return FileSystem.of(values)

    async def setattr(
        self,
        path: str,
        *,
        mode: int | None = None,
        owner: str | int | None = None,
        group: str | int | None = None,
        size: int | None = None,
        accessed_ns: Time | None = None,
        modified_ns: Time | None = None,
    ) -> None:
        """Sets what is given; times in nanoseconds since 1970, or "now" by the server's clock."""
        values = settable(
            mode=mode,
            owner=owner,
            group=group,
            size=size,
            accessed_ns=accessed_ns,
            modified_ns=modified_ns,
        )
        await self._at(names_of(path), setattr_of(ANONYMOUS, values), path=path)

    async def access(self, path: str, rights: int) -> int:
        """Returns those of the rights (ACCESS4_* of RFC 8881 section 18.1) the server grants."""
        ask = access(rights)
        return (await self._at(names_of(path), ask, path=path))[ask]

    # Directories.

    async def listdir(self, path: str = "/") -> list[Entry]:
        """Returns all entries of a directory except `.` and `..`."""
        return [entry async for entry in self.scandir(path)]

    async def scandir(self, path: str = "/") -> AsyncIterator[Entry]:
        """Yields the entries of a directory, reading one page of the server at a time."""
        session = self.through
        page_bytes = min(_PAGE_BYTES, session.limits.response_bytes - 1024)
        handle = getfh()
        found = (await self._at(names_of(path), handle, path=path))[handle]
        cookie, verifier = 0, bytes(8)
        seen = {cookie}
        while True:
            read = codec.readdir(cookie, verifier, page_bytes, (Attribute.RDATTR_ERROR, *STAT))
            page = (await session.compound(putfh(found), read, path=path))[read]
            for one in page.entries:
                failed = one.values.get(Attribute.RDATTR_ERROR)
                yield Entry(one.name, None if failed else Stat.of(one.values))
            if page.is_last:
                return
            if not page.entries or page.entries[-1].cookie in seen:
                raise BadReply(f"READDIR of {path}: the server does not come to an end")
            cookie, verifier = page.entries[-1].cookie, page.verifier
            seen.add(cookie)

    async def mkdir(self, path: str, mode: int = 0o755) -> None:
        await self._create(path, FileType.DIR, mode=mode)

    async def symlink(self, path: str, target: str) -> None:
        """Makes a symbolic link at `path`."""
        await self._create(path, FileType.LNK, target=target)

    async def mkfifo(self, path: str, mode: int = 0o644) -> None:
        await self._create(path, FileType.FIFO, mode=mode)

    async def _create(
        self, path: str, kind: FileType, *, mode: int | None = None, target: str = ""
    ) -> None:
        names, name = parent_of(path)
        create = codec.create(kind, name, settable(mode=mode), target=target)
        await self._at(names, create, path=path)

    async def readlink(self, path: str) -> str:
        read = codec.readlink()
        return (await self._at(names_of(path), read, path=path))[read]

    async def remove(self, path: str) -> None:
        """Removes a name; of a directory only if it is empty."""
        names, name = parent_of(path)
        await self._at(names, codec.remove(name), path=path)

    async def rmdir(self, path: str) -> None:
        await self.remove(path)

    async def rename(self, old: str, new: str) -> None:
        """Renames; replaces what `new` names, if it is of the same kind."""
        old_names, old_name = parent_of(old)
        new_names, new_name = parent_of(new)
        await self._at_both(old_names, new_names, codec.rename(old_name, new_name), old)

    async def link(self, old: str, new: str) -> None:
        """Adds another name for a file."""
        new_names, new_name = parent_of(new)
        await self._at_both(names_of(old), new_names, codec.link(new_name), new)

    # Extended attributes, which 4.2 has.

    async def getxattr(self, path: str, name: str) -> bytes:
        get = xattr.getxattr(name)
        return (await self._at(names_of(path), get, path=path))[get]

    async def setxattr(
        self, path: str, name: str, value: bytes, *, create: bool = False, replace: bool = False
    ) -> None:
        """Sets one. create: it must not exist yet; replace: it must."""
        how = XattrOption(create * XattrOption.CREATE | replace * XattrOption.REPLACE)
        await self._at(names_of(path), xattr.setxattr(name, value, how), path=path)

    async def removexattr(self, path: str, name: str) -> None:
        await self._at(names_of(path), xattr.removexattr(name), path=path)

    async def listxattrs(self, path: str) -> list[str]:
        page_bytes = min(_PAGE_BYTES, self.through.limits.response_bytes - 1024)
        names: list[str] = []
        cookie = 0
        while True:
            ask = xattr.listxattrs(cookie, page_bytes)
            part = (await self._at(names_of(path), ask, path=path))[ask]
            names += part.names
            if part.is_last:
                return names
            if part.cookie <= cookie:
                raise BadReply(f"LISTXATTRS of {path}: the server does not come to an end")
            cookie = part.cookie

    # The operations that lead to a file.

    async def _at(self, names: Sequence[str], *operations: Operation[Any], path: str) -> Results:
        """Executes operations where the names lead to."""
        way = await self._way(names, path)
        return await self.through.compound(*way, *operations, path=path)

    async def _at_both(
        self, first: Sequence[str], second: Sequence[str], operation: Operation[None], path: str
    ) -> None:
        """Executes an operation with one place as the saved filehandle, another as the current."""
        saved = await self._way(first, path, room=2)
        current = await self._way(second, path, room=2)
        await self.through.compound(*saved, savefh(), *current, operation, path=path)

    async def _way(self, names: Sequence[str], path: str, room: int = 1) -> list[Operation[Any]]:
        """Returns the operations that lead there; a long way takes COMPOUNDs of its own first."""
        most = max(1, (self.through.limits.operations - _OTHERS) // room)
        way = walk(names[:most])
        for start in range(most, len(names), most):
            handle = getfh()
            found = (await self.through.compound(*way, handle, path=path))[handle]
            way = [putfh(found), *walk(names[start : start + most])[1:]]
        return way
