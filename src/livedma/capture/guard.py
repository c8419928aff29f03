# SPDX-License-Identifier: BSD-2-Clause
"""The guard is a firewall for RoCE in XDP: it decides which packets of an interface reach its
stack.

The guard outlives the process that set it up. Its rules are tried in order, and the first that
matches decides. A packet that matches none passes. What is not RoCE always passes.

>>> with Guard("eth0") as guard:  # doctest: +SKIP
...     guard.add_qps([17, 18])
...     guard.add(Rule("drop", qps="unknown"))
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from livedma._native import guard as native
from livedma.bpffs import find_bpffs, locked, remove_pins
from livedma.capture.guard_rule import Rule
from livedma.errors import LivedmaError, PrivilegeError
from livedma.privilege import CAP_NET_ADMIN, CAP_SYS_ADMIN, holds

__all__ = ["Counters", "Guard", "GuardError", "Rule", "Status", "Xdp"]


class GuardError(LivedmaError):
    """Reports that the guard cannot be set up, found or changed."""


class Counters(NamedTuple):
    """Counts what has matched so far."""

    packets: int
    bytes: int
    dropped: int  #: packets among them
    last_ns: int  #: CLOCK_MONOTONIC; 0: never

    @property
    def seconds_ago(self) -> float | None:
        return max(0.0, (time.monotonic_ns() - self.last_ns) / 1e9) if self.last_ns else None


class Xdp(NamedTuple):
    """Describes the XDP program that an interface runs."""

    prog_id: int
    name: str
    link_id: int  #: of the BPF link that holds it; 0: none does
    is_generic: bool

    def __str__(self) -> str:
        return f"XDP program {self.prog_id} ({self.name or 'no name'})"


_NOTHING = Counters(0, 0, 0, 0)


@dataclass(frozen=True)
class Status:
    """Describes the state of a guard."""

    mode: str | None  #: native or generic; None: there is no guard
    rules: tuple[tuple[Rule, Counters], ...] = ()
    unmatched: Counters = _NOTHING  #: RoCE that no rule matched, and that passed
    malformed: Counters = _NOTHING  #: RoCE without a whole BTH, whatever its rule
    known_qps: tuple[int, ...] = ()
    foreign: Xdp | None = None  #: the XDP program that runs where there is no guard


class Guard:
    """Manages the guard of an interface, on or off. It is a context manager: while it is open,
    other commands wait.

    Entering removes what earlier commands left of interfaces that are gone. Rules are numbered from
    1. Adding a rule or a QP turns the guard on, removing the last rule turns it off.
    """

    def __init__(self, interface: str) -> None:
        self.interface = interface
        self.has_mounted = False  #: the BPF file system was not mounted before
        self._exit = ExitStack()
        self._session: native.GuardSession | None = None
        self._is_foreign_version = False

    def __enter__(self) -> Guard:
        _require_privilege()
        with ExitStack() as stack, self._explained():
            self._root, self.has_mounted = find_bpffs()
            stack.enter_context(locked(self._root))
            home = self._root / "livedma" / "guard"
            _sweep(home, self._root)
            self._ifindex = self._find_interface()
            # The interface's name does not serve: names change, and this file system takes no dots.
            namespace = os.stat("/proc/thread-self/ns/net").st_ino
            self._directory = home / f"{namespace}-{self._ifindex}"
            self._open()
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        self._exit.close()

    @property
    def is_on(self) -> bool:
        return self._session is not None or self._is_foreign_version

    def status(self) -> Status:
        with self._explained():
            xdp = self._xdp()
            if not self.is_on:
                return Status(None, foreign=xdp)
            session = self._require_session()
            counters = [Counters(*each) for each in session.counters()]
            rules = [Rule.of(record) for record in session.rules()]
            return Status(
                mode="generic" if xdp and xdp.is_generic else "native",
                rules=tuple((rule, counters[rule.slot]) for rule in rules),
                unmatched=counters[native.SLOT_UNMATCHED],
                malformed=counters[native.SLOT_MALFORMED],
                known_qps=tuple(session.known_qps()),
            )

    def rules(self) -> list[Rule]:
        with self._explained():
            if not self.is_on:
                return []
            return [Rule.of(record) for record in self._require_session().rules()]

    def add(self, rule: Rule, at: int | None = None) -> int:
        """Adds a rule as number `at`, or as the last; returns its number."""
        rules = self.rules()
        number = len(rules) + 1 if at is None else at
        if not 1 <= number <= len(rules) + 1:
            raise GuardError(
                f"a rule cannot become number {number}: {self.interface} has {len(rules)}, "
                f"so give 1 to {len(rules) + 1}"
            )
        if len(rules) == native.RULES_MAX:
            raise GuardError(
                f"{self.interface} has {native.RULES_MAX} rules, which is all it can have: "
                f"remove one with 'livedma guard {self.interface} remove K'"
            )
        rules.insert(number - 1, rule)
        self.replace(rules)
        return number

    def remove(self, number: int) -> Rule:
        rules = self.rules()
        if not 1 <= number <= len(rules):
            raise GuardError(
                f"{self.interface} has no rule {number}: "
                f"'livedma guard {self.interface}' lists those that are there"
            )
        removed = rules.pop(number - 1)
        if rules:
            self.replace(rules)
        else:
            self.off()
        return removed

    def replace(self, rules: Iterable[Rule]) -> None:
        """Replaces all rules at once: no packet meets a mixture of old and new.

        Rules that came from this guard keep their counters.
        """
        with self._explained():
            self._start().replace([rule.record() for rule in rules])

    def add_qps(self, qps: Iterable[int]) -> None:
        """Tells the guard that these queue pairs exist."""
        with self._explained():
            self._start().change_qps(set(qps), ())

    def remove_qps(self, qps: Iterable[int]) -> None:
        """Tells the guard that these queue pairs do not exist."""
        if self.is_on:
            with self._explained():
                self._require_session().change_qps((), set(qps))

    def set_qps(self, qps: Iterable[int]) -> None:
        """Tells the guard that these queue pairs exist and no others."""
        wanted = set(qps)
        with self._explained():
            session = self._start()
            session.change_qps(wanted, set(session.known_qps()) - wanted)

    def off(self) -> bool:
        """Removes the program, the rules and the known QPs. Returns whether there was a guard."""
        was_on = self.is_on
        self._close()
        with self._explained():
            if was_on:
                native.detach(str(self._directory))
            remove_pins(self._directory, self._root)
        self._is_foreign_version = False
        return was_on

    def _find_interface(self) -> int:
        try:
            return socket.if_nametoindex(self.interface)
        except OSError:
            raise GuardError(
                f"there is no interface {self.interface}: 'ip link' lists those that are there"
            ) from None

    def _xdp(self) -> Xdp | None:
        found = native.xdp_query(self._ifindex)
        return Xdp(*found) if found else None

    def _open(self) -> None:
        try:
            self._session = native.GuardSession.open(str(self._directory))
        except OSError as error:
            self._is_foreign_version = error.errno == errno.EPROTO
            if error.errno not in (errno.ENOENT, errno.EPROTO):
                raise

    def _start(self) -> native.GuardSession:
        if self.is_on:
            return self._require_session()
        try:
            self._directory.mkdir(mode=0o700, parents=True)
            self._session = native.GuardSession.start(self._ifindex, str(self._directory))
        except OSError as error:
            remove_pins(self._directory, self._root)
            if error.errno == errno.EBUSY and (other := self._xdp()):
                raise GuardError(_in_the_way(other, self.interface)) from None
            raise
        return self._session

    def _require_session(self) -> native.GuardSession:
        if self._session is None:
            raise GuardError(
                f"the guard of {self.interface} was set up by another version of livedma: "
                f"take it away with 'livedma guard {self.interface} off'"
            )
        return self._session

    def _close(self) -> None:
        if self._session:
            self._session.close()
            self._session = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise GuardError(_explanation(error, self.interface)) from error


def _require_privilege() -> None:
    if holds(CAP_NET_ADMIN, CAP_SYS_ADMIN):
        return
    if os.geteuid():
        raise PrivilegeError("guarding an interface needs root")
    raise GuardError(
        "root lacks CAP_NET_ADMIN and CAP_SYS_ADMIN here: run it outside the container"
    )


def _sweep(home: Path, root: Path) -> None:
    """Removes what belongs to interfaces that are gone and to starts that were interrupted."""
    for directory in list(home.iterdir()) if home.is_dir() else []:
        try:
            native.GuardSession.open(str(directory)).close()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENODEV):
                remove_pins(directory, root)


def _in_the_way(other: Xdp, interface: str) -> str:
    if other.link_id:
        remedy = f"end the program that attached it or run 'bpftool link detach id {other.link_id}'"
    else:
        remedy = f"take it away with 'ip link set dev {interface} xdp off'"
    return f"{interface} already runs {other}, which was left as it is: {remedy}, then try again"


def _explanation(error: OSError, interface: str) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"the kernel refuses BPF programs on {interface}: run it as root of the host"
    if error.errno == errno.ENOSYS:
        return "this kernel has no BPF: boot one built with CONFIG_BPF_SYSCALL"
    if error.errno == errno.EINVAL:
        return (
            f"this kernel does not take the guard for {interface} (invalid argument): "
            "it needs Linux 5.18 or later"
        )
    if error.errno == errno.EOPNOTSUPP:
        return f"{interface} takes no XDP program, neither native nor generic: guard another one"
    return f"the guard of {interface} failed ({error.strerror}): 'dmesg' may say more"
