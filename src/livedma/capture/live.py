# SPDX-License-Identifier: BSD-2-Clause
"""Captures packets of a live interface, through BPF."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from livedma._native.bpf import CaptureSession
from livedma._native.tap import SNAPLEN_MAX
from livedma.capture.filters import Filters
from livedma.capture.source import Counters, Direction, LiveSource
from livedma.errors import CaptureError

Hook = Literal["auto", "xdp", "tc"]

LOOK_NS = 200_000_000  # between two looks at the interface

_SIOCGIFFLAGS = 0x8913
_SIOCGIFHWADDR = 0x8927
_SIOCETHTOOL = 0x8946
_DRIVER_INFO = 0x03
_IFF_UP = 0x1
_ETHERNET, _LOOPBACK = 1, 772  # ARPHRD_*: these have Ethernet headers

#: Drivers that disable offloads while an XDP program is attached. On a veth the other end loses UDP
#: segmentation, which costs most of its bandwidth.
_XDP_COSTS_OFFLOADS = {"veth", "virtio_net", "tun", "hv_netvsc", "vmxnet3"}


@dataclass(frozen=True)
class _Interface:
    index: int
    up: bool


def _ioctl(iface: str, request: int, argument: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return fcntl.ioctl(sock, request, iface.encode().ljust(16, b"\0") + argument)


def _look(iface: str) -> _Interface | None:
    """Returns the interface as it is now; None: there is none of that name."""
    try:
        index = socket.if_nametoindex(iface)
        flags = struct.unpack_from("H", _ioctl(iface, _SIOCGIFFLAGS, bytes(24)), 16)[0]
    except OSError:
        return None
    return _Interface(index, bool(flags & _IFF_UP))


def _driver(iface: str) -> str:
    info = ctypes.create_string_buffer(struct.pack("I", _DRIVER_INFO), 196)
    with contextlib.suppress(OSError):
        _ioctl(iface, _SIOCETHTOOL, struct.pack("P16x", ctypes.addressof(info)))
    return info.raw[4:36].rstrip(b"\0").decode(errors="replace")


def _check_name(iface: str) -> None:
    if not 0 < len(iface.encode()) < 16 or "/" in iface:
        raise CaptureError(f"{iface!r} is no interface name: `ip link` lists them")


class Capture(LiveSource):
    """Captures one interface live, by name. It follows an interface that goes and comes back.

    The thread that iterates must stay in the network namespace in which the capture was made, since
    the capture looks the name up there.
    """

    link = _ETHERNET

    def __init__(
        self,
        iface: str,
        *,
        direction: Direction = "both",
        hook: Hook = "auto",
        filters: Filters | None = None,
        snaplen: int = SNAPLEN_MAX,
        sample: int = 1,
        ring_bytes: int = 0,
        replace: bool = False,
        verbose: bool = False,
        without_links: bool = False,
        count: int | None = None,
        seconds: float | None = None,
        interval_s: float = 0.2,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        _check_name(iface)
        super().__init__(
            snaplen=snaplen, count=count, seconds=seconds, interval_s=interval_s, say=say
        )
        self.iface = iface
        self._filters = filters or Filters()
        self._direction = direction
        self._settings: dict[str, Any] = {
            "snaplen": snaplen,
            "sample": sample,
            "ring_bytes": ring_bytes,
            "verbose": verbose,
            "replace": replace,
            "without_links": without_links,
        }
        self._seen = _look(iface)
        if self._seen is None:
            raise CaptureError(f"{iface}: there is no such interface: `ip link` lists them")
        self._check_ethernet()
        self._session = self._start(hook)
        self._next_look_ns = time.monotonic_ns() + LOOK_NS
        if not self._seen.up:
            say(f"{iface} is down: waiting for it to come up")

    def _check_ethernet(self) -> None:
        kind = struct.unpack_from("H", _ioctl(self.iface, _SIOCGIFHWADDR, bytes(24)), 16)[0]
        if kind not in (_ETHERNET, _LOOPBACK):
            raise CaptureError(
                f"{self.iface} is not Ethernet: capture on the interface that carries its packets"
            )

    def _open(self, *, rx_by_tc: bool, native_only: bool = False) -> CaptureSession:
        """Opens a session and attaches it."""
        assert self._seen is not None
        try:
            session = CaptureSession(
                rx=self._direction != "tx",
                tx=self._direction != "rx",
                rx_by_tc=rx_by_tc,
                native_only=native_only,
                prefixes=self._filters.prefixes,
                qps=self._filters.qps,
                operations=self._filters.operations,
                **self._settings,
            )
        except OSError as error:
            raise CaptureError(error.strerror) from error
        try:
            session.attach(self._seen.index)
        except OSError as error:
            session.close()
            raise CaptureError(f"{self.iface}: {error.strerror}") from error
        return session

    def _start(self, hook: Hook) -> CaptureSession:
        if hook == "tc" or self._direction == "tx":
            return self._open(rx_by_tc=True)
        if hook == "xdp":
            return self._open(rx_by_tc=False)
        if _driver(self.iface) in _XDP_COSTS_OFFLOADS:
            self._say(f"{self.iface}: through tc, since XDP would cost the interface its offloads")
            return self._open(rx_by_tc=True)
        try:
            return self._open(rx_by_tc=False, native_only=True)
        except CaptureError as error:
            reason = error.__cause__
            if not isinstance(reason, OSError) or reason.errno in (errno.EPERM, errno.EBUSY):
                raise
            self._say(f"{self.iface}: through tc, since its driver has no XDP")
            return self._open(rx_by_tc=True)

    def close(self) -> None:
        """Detaches everything and restores what it replaced. It may be called again."""
        try:
            self._session.close()
        except OSError as error:
            raise CaptureError(f"{self.iface}: {error.strerror}") from error

    def _poll(self, timeout_ms: int, limit: int) -> int:
        return self._session.poll(self._batch, timeout_ms, limit)

    def _detach(self) -> None:
        try:
            self._session.detach()
        except OSError as error:
            raise CaptureError(f"{self.iface}: {error.strerror}") from error

    def _follow(self) -> None:
        """Looks at the interface every LOOK_NS, and attaches again if it is another one."""
        if time.monotonic_ns() < self._next_look_ns:
            return
        before, now = self._seen, _look(self.iface)
        self._next_look_ns = time.monotonic_ns() + LOOK_NS
        if now == before:
            return
        self._seen = now
        if now is None:
            self._say(f"{self.iface} is gone: waiting for it to come back")
            self._detach()  # the interface may have another name, or be in another namespace
            return
        if before is None or now.index != before.index:
            try:
                self._session.attach(now.index)
            except OSError as error:
                if _look(self.iface) == now:
                    raise CaptureError(f"{self.iface}: {error.strerror}") from error
                self._seen = None  # gone again; the next look reports it
                return
            how = "is back" if before is None else "was replaced by another interface of that name"
            self._say(f"{self.iface} {how}: capturing again{'' if now.up else '; it is down'}")
        elif before.up != now.up:
            self._say(f"{self.iface} is {'up' if now.up else 'down'}")

    @property
    def modes(self) -> str:
        """Returns how the capture is attached, for people: "rx by native XDP, tx by tcx"."""
        pairs = (("rx", self._session.rx_mode), ("tx", self._session.tx_mode))
        return ", ".join(f"{side} by {mode}" for side, mode in pairs if mode)

    @property
    def outlives_kill(self) -> bool:
        """Returns whether a killed process would leave tc filters behind (kernels before 6.6)."""
        return "clsact" in (self._session.rx_mode, self._session.tx_mode)

    def counters(self) -> Counters:
        return Counters(**self._session.counters())
