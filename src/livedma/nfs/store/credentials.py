"""Acting as who asks: the filesystem ids of a thread, for as long as it works for a client.

The kernel then judges every access as it would that of a local user. Ids are of threads, not of the
process: other threads act for other users at the same time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from livedma.nfs.context import Credential
from livedma.nfs.store import syscalls

__all__ = ["Actor", "Identity", "SquashRules"]

GIDS_MOST = 16  # what AUTH_SYS can say

_CAP_SETGID = 1 << 6
_CAP_SETUID = 1 << 7
# What setfsuid() takes from who is no longer root: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER,
# FSETID, LINUX_IMMUTABLE, MKNOD and MAC_OVERRIDE. Whoever has SYS_RESOURCE exceeds quotas and fills
# blocks that are reserved; it leaves that one.
_CAP_FS_SET = 0b11111 | 1 << 9 | 1 << 27 | 1 << 32
_CAP_SYS_RESOURCE = 1 << 24
_CAPABILITIES_OF_ROOT = _CAP_FS_SET | _CAP_SYS_RESOURCE


class SquashRules(Protocol):
    """Who becomes anonymous: nobody, root, or all."""

    @property
    def squash(self) -> Literal["none", "root", "all"]: ...
    @property
    def anonymous_uid(self) -> int: ...
    @property
    def anonymous_gid(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a thread is to filesystems."""

    uid: int
    gid: int
    gids: tuple[int, ...]


class Actor:
    """Gives threads the identity of their clients, where the process may."""

    def __init__(self, rules: SquashRules) -> None:
        self._rules = rules
        effective, _, _ = syscalls.capabilities()
        needed = _CAP_SETGID | _CAP_SETUID
        self.is_privileged = os.geteuid() == 0 and effective & needed == needed
        self._own = Identity(os.geteuid(), os.getegid(), tuple(os.getgroups()))
        self._thread = threading.local()

    def identity(self, credential: Credential) -> Identity:
        """Who a client is here, after squashing."""
        rules = self._rules
        if credential.uid is None or credential.gid is None or rules.squash == "all":
            return Identity(rules.anonymous_uid, rules.anonymous_gid, ())
        uid, gid, gids = credential.uid, credential.gid, credential.gids[:GIDS_MOST]
        if rules.squash == "root":
            uid = uid or rules.anonymous_uid
            gid = gid or rules.anonymous_gid
            gids = tuple(one or rules.anonymous_gid for one in gids)
        return Identity(uid, gid, gids)

    @property
    def current(self) -> Identity:
        """Who this thread is now."""
        return getattr(self._thread, "identity", self._own)

    @contextmanager
    def acting_as(self, credential: Credential) -> Iterator[Identity]:
        """This thread is the client until the block ends; files that it makes get the modes asked
        for. A process without privilege stays who it is.
        """
        self._prepare_thread()
        identity = self.identity(credential) if self.is_privileged else self._own
        umask = os.umask(0)
        try:
            with self._being(identity):
                yield identity
        finally:
            os.umask(umask)

    @contextmanager
    def as_server(self) -> Iterator[None]:
        """The server itself again, for what no client is asked about."""
        with self._being(self._own):
            yield

    @contextmanager
    def _being(self, identity: Identity) -> Iterator[None]:
        before = self.current
        if identity == before:
            yield
            return
        try:
            self._become(identity)
            yield
        finally:
            self._become(before)

    def _become(self, identity: Identity) -> None:
        syscalls.set_groups(identity.gids)
        syscalls.set_fsgid(identity.gid)
        syscalls.set_fsuid(identity.uid)
        effective, permitted, inheritable = self._thread.capabilities
        if identity.uid != 0:
            effective &= ~_CAPABILITIES_OF_ROOT
        syscalls.set_capabilities(effective, permitted, inheritable)
        self._thread.identity = identity

    def _prepare_thread(self) -> None:
        if hasattr(self._thread, "capabilities"):
            return
        try:
            syscalls.own_filesystem_context()
        except PermissionError:  # In a sandbox: then the umask is everybody's, and 0 for all.
            os.umask(0)
        self._thread.capabilities = syscalls.capabilities()
