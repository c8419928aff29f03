# SPDX-License-Identifier: BSD-2-Clause
"""Captures packets of a livedma device on its receive and transmit paths, without privilege."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable

from livedma._native.tap import LINK, SNAPLEN_MAX, TAPS_MAX, TapSession
from livedma.capture.filters import Filters
from livedma.capture.source import Counters, Direction, LiveSource
from livedma.errors import CaptureError

_REASONS = {
    errno.EACCES: "it is another user's: capture as that user, or as root",
    errno.EPERM: "it is another user's: capture as that user, or as root",
    errno.EBUSY: f"{TAPS_MAX} captures tap it already: end one of them",
    errno.EPROTO: "it is of another version of livedma than this command",
    errno.ETIMEDOUT: "it does not answer: its process may be stopped",
    errno.EBADMSG: "what it wrote into the ring is no packet",
    errno.ENOMEM: "no memory for the ring: ask for less with --ring",
}


def _parse(text: str) -> tuple[str, int]:
    """Returns the address as devices write it, and its interface's index where it needs one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise CaptureError(f"{text!r} is no address: give the device's, IPv4 or IPv6") from None
    if isinstance(address, ipaddress.IPv4Address) or not address.is_link_local:
        return str(address), 0
    if address.scope_id is None:
        raise CaptureError(f"{text} is on every link: write {text}%IFACE")
    try:
        return str(address), socket.if_nametoindex(address.scope_id)
    except OSError:
        raise CaptureError(f"{text}: there is no interface {address.scope_id}") from None


class DeviceCapture(LiveSource):
    """Captures the device at an address live, in any process of this user.

    It waits for a device that does not run yet, and ends when the device closes.
    """

    link = LINK

    def __init__(
        self,
        address: str,
        *,
        direction: Direction = "both",
        filters: Filters | None = None,
        snaplen: int = SNAPLEN_MAX,
        sample: int = 1,
        ring_bytes: int = 0,
        count: int | None = None,
        seconds: float | None = None,
        interval_s: float = 0.2,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        super().__init__(
            snaplen=snaplen, count=count, seconds=seconds, interval_s=interval_s, say=say
        )
        self.address, scope = _parse(address)
        filters = filters or Filters()
        try:
            self._session = TapSession(
                self.address,
                scope=scope,
                rx=direction != "tx",
                tx=direction != "rx",
                ring_bytes=ring_bytes,
                snaplen=snaplen,
                sample=sample,
                prefixes=filters.prefixes,
                qps=filters.qps,
                operations=filters.operations,
            )
            self.attached = self._session.connect()
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> CaptureError:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        return CaptureError(f"the device at {self.address} cannot be captured: {reason}")

    def _poll(self, timeout_ms: int, limit: int) -> int:
        try:
            if self.attached or self._session.gone:
                return self._session.poll(self._batch, timeout_ms, limit)
            self.attached = self._session.connect(timeout_ms)
        except OSError as error:
            raise self._failure(error) from error
        if self.attached:
            self._say(f"the device at {self.address} has come: capturing")
        return 0

    def _follow(self) -> None:
        if self._session.gone and not self._stopped:
            self._say(f"the device at {self.address} has closed")
            self.stop()

    def _detach(self) -> None:
        self._session.detach()

    def close(self) -> None:
        self._session.close()

    @property
    def modes(self) -> str:
        return "tapped" if self.attached else "there is no such device yet: waiting for it"

    def counters(self) -> Counters:
        return Counters(**self._session.counters())
