# SPDX-License-Identifier: BSD-2-Clause
"""Lets a thread act as the client: it gets the client's filesystem ids while it works for that
client.

The kernel then judges every access as that of a local user. Ids belong to a thread, not to the
process: other threads act for other users at the same time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol

from livedma.nfs.server.context import Credential
from livedma.nfs.server.store import syscalls

__all__ = ["Actor", "Identity", "SquashRules"]

GIDS_MOST = 16  # what AUTH_SYS can say
_NO_ID = 0xFFFFFFFF  # (uid_t)-1

_CAP_SETGID = 1 << 6
_CAP_SETUID = 1 << 7
# What setfsuid() takes from a thread that is no longer root: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH,
# FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD and MAC_OVERRIDE. SYS_RESOURCE exceeds quotas and fills
# blocks that are reserved; setfsuid() leaves that one.
_CAP_FS_SET = 0b11111 | 1 << 9 | 1 << 27 | 1 << 32
_CAP_SYS_RESOURCE = 1 << 24
_CAPABILITIES_OF_ROOT = _CAP_FS_SET | _CAP_SYS_RESOURCE


class SquashRules(Protocol):
    """Says which clients become anonymous: none, root, or all."""

    @property
    def squash(self) -> Literal["none", "root", "all"]: ...
    @property
    def anonymous_uid(self) -> int: ...
    @property
    def anonymous_gid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Holds the ids of a thread to filesystems. is_server: it has the server's own rights, which a
    client with the same ids does not have."""

    uid: int
    gid: int
    gids: tuple[int, ...]
    is_server: bool = False


class _Thread(threading.local):
    """Holds what is known of the thread that reads it."""

    identity: Identity | None = None
    own: syscalls.Capabilities | None = None
    reduced: syscalls.Capabilities | None = None


class Actor:
    """Gives threads the identity of their clients, if the process may.

    It needs SETUID and SETGID, not root. A server that is not root also needs DAC_READ_SEARCH, to
    find files by their handles. rules: they may be replaced, and count for later calls.
    """

    def __init__(self, rules: SquashRules) -> None:
        self.rules = rules
        effective, _, _ = syscalls.capabilities()
        needed = _CAP_SETGID | _CAP_SETUID
        self.is_privileged = effective & needed == needed
        self._own = Identity(os.geteuid(), os.getegid(), tuple(os.getgroups()), is_server=True)
        self._thread = _Thread()

    def identity(self, credential: Credential) -> Identity:
        """Returns a client's identity here, after squashing. The id that stands for no user becomes
        anonymous, as in Linux's server.
        """
        rules = self.rules
        if credential.uid is None or credential.gid is None or rules.squash == "all":
            return Identity(rules.anonymous_uid, rules.anonymous_gid, ())
        uid = rules.anonymous_uid if credential.uid == _NO_ID else credential.uid
        gid = rules.anonymous_gid if credential.gid == _NO_ID else credential.gid
        gids = tuple(one for one in credential.gids[:GIDS_MOST] if one != _NO_ID)
        if rules.squash == "root":
            uid = uid or rules.anonymous_uid
            gid = gid or rules.anonymous_gid
            gids = tuple(one or rules.anonymous_gid for one in gids)
        return Identity(uid, gid, gids)

    @property
    def current(self) -> Identity:
        """Returns the identity of this thread now."""
        return self._thread.identity or self._own

    def acting_as(self, credential: Credential) -> _Acting:
        """Gives this thread the client's identity until the block ends; files that it makes get the
        modes asked for. A process without privilege keeps its own identity.
        """
        self._prepare_thread()
        return _Acting(self, self.identity(credential) if self.is_privileged else self._own)

    def as_server(self) -> AbstractContextManager[None]:
        """Gives the thread the server's rights until the block ends, in which no file is made."""
        current = self.current
        if current.is_server or not current.uid:  # the thread has them
            return contextlib.nullcontext()
        return _AsRoot(current.uid) if not self._own.uid else _AsServer(self._thread)

    def become(self, identity: Identity) -> None:
        """Changes the identity of this thread. After an OSError the change has failed, and the
        thread may have ids of neither identity.
        """
        syscalls.set_groups(identity.gids)
        syscalls.set_fsgid(identity.gid)
        syscalls.set_fsuid(identity.uid)
        thread = self._thread
        # Always set: the kernel itself changes them on a way to or from uid 0.
        is_free = identity.is_server or not identity.uid
        capabilities = thread.own if is_free else thread.reduced
        if capabilities is not None:
            capabilities.set()
        thread.identity = identity

    def _prepare_thread(self) -> None:
        if self._thread.own is not None:
            return
        try:
            syscalls.own_filesystem_context()
        except PermissionError:  # In a sandbox: then all threads share one umask, which becomes 0.
            os.umask(0)
        effective, permitted, inheritable = syscalls.capabilities()
        self._thread.own = syscalls.Capabilities(effective, permitted, inheritable)
        self._thread.reduced = syscalls.Capabilities(
            effective & ~_CAPABILITIES_OF_ROOT, permitted, inheritable
        )


class _Acting:
    """Gives a block another identity; it is no generator, since every request uses one."""

    __slots__ = ("_actor", "_before", "_identity", "_umask")

    def __init__(self, actor: Actor, identity: Identity) -> None:
        self._actor, self._identity = actor, identity
        self._before = actor.current

    def __enter__(self) -> Identity:
        self._umask = os.umask(0)
        if self._identity != self._before:
            try:
                self._actor.become(self._identity)
            except BaseException:
                self._leave()
                raise
        return self._identity

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        if self._identity != self._before:
            self._actor.become(self._before)
        os.umask(self._umask)


class _AsRoot:
    """Makes the thread root to filesystems within a block, with root's rights."""

    __slots__ = ("_uid",)

    def __init__(self, uid: int) -> None:
        self._uid = uid

    def __enter__(self) -> None:
        syscalls.set_fsuid(0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        syscalls.set_fsuid(self._uid)


class _AsServer:
    """Does the same for a server that is not root: its capabilities are all that it has."""

    __slots__ = ("_thread",)

    def __init__(self, thread: _Thread) -> None:
        self._thread = thread

    def __enter__(self) -> None:
        assert self._thread.own is not None
        self._thread.own.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._thread.reduced is not None
        self._thread.reduced.set()
