# SPDX-License-Identifier: BSD-2-Clause
"""livedma capture: shows the RoCE packets of an interface or of a livedma device, live."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from livedma.capture.sinks import FORMATS, CaptureTotals, open_sink
from livedma.cli import units
from livedma.cli.filtering import add_filters, filters_of
from livedma.cli.output import Tally, colors_wanted, open_output
from livedma.errors import CaptureError, PrivilegeError
from livedma.wire.words import amount

if TYPE_CHECKING:
    from livedma.capture.source import Counters, LiveSource

_EXAMPLES = """examples:
  livedma capture eth0
  livedma capture eth0 --host 10.0.0.7 --op send,write --snaplen 128
  livedma capture eth0 --direction rx --format pcapng --write trace.pcapng
  livedma capture eth0 --format json --count 1000 | jq .psn
  livedma capture --device 10.0.0.5 --format pcapng --write device.pcapng

--device taps a livedma device of the same user where it receives and sends: no BPF, no root. It may
be started before the device, and ends with it.

A hardware RoCE NIC's own traffic bypasses the kernel: capture sees software RoCE (rxe, livedma)."""


def _size(text: str) -> int:
    value = units.size(text)
    if value < 4096 or value & (value - 1) or value > 1 << 30:
        raise argparse.ArgumentTypeError(f"{text}: the ring takes a power of two from 4KiB to 1GiB")
    return value


def _ratio(text: str) -> int:
    try:
        return _positive(text.removeprefix("1/"))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no ratio: write 1/100, say") from None


def _positive(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return value


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "capture",
        help="capture RoCE packets live, with BPF or from a livedma device",
        description="Captures the RoCE packets of an interface with BPF, or those of a livedma "
        "device from its own paths, and passes all packets on untouched. "
        "Ends with Ctrl-C; packets lost because the ring buffer was full are counted.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("iface", metavar="IFACE", nargs="?", help="the interface; it may go away and come back")
    add("--device", metavar="ADDR", help="instead: the livedma device at this address")
    add(
        "--direction",
        choices=("rx", "tx", "both"),
        default="both",
        help="as this machine sees it (both)",
    )
    add("--count", type=_positive, metavar="N", help="end after N packets")
    add("--seconds", type=_seconds, metavar="S", help="end after S seconds")
    add("--format", choices=(*FORMATS, "pcapng"), help="how packets are written (text)")
    add("--json", action="store_true", help="the same as --format json")
    add("--write", metavar="FILE", help="write to a file instead of the terminal")
    add_filters(parser)
    add("--sample", type=_ratio, default=1, metavar="1/N", help="only one of every N packets (1/1)")
    add("--snaplen", type=_positive, metavar="BYTES", help="keep so many bytes of a frame (all)")
    add(
        "--hook",
        choices=("auto", "xdp", "tc"),
        default="auto",
        help="where received packets are seen (auto: XDP, or tc where XDP costs offloads)",
    )
    add(
        "--replace",
        action="store_true",
        help="put a foreign XDP program aside; it is put back at the end, not if livedma is killed",
    )
    add("--ring", type=_size, default=0, metavar="SIZE", help="of the ring buffer (16MiB)")
    add("--verbose", action="store_true", help="show what libbpf and the verifier say")
    parser.set_defaults(run=run, wrong_use=parser.error)


class _Status:
    """Shows the progress in one line of the terminal; without a terminal it reports losses only."""

    def __init__(self, every_s: float = 1.0) -> None:
        self._live = sys.stderr.isatty()
        self._mixed = self._live and sys.stdout.isatty()
        self._every_s = every_s
        self._last_s = time.monotonic()
        self._packets = self._dropped = 0
        self._shown = False

    def say(self, sentence: str) -> None:
        self.clear()
        print(f"livedma: {sentence}", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False

    def before_output(self) -> None:
        if self._mixed:
            self.clear()

    def update(self, capture: LiveSource, packets: int) -> None:
        elapsed_s = time.monotonic() - self._last_s
        if elapsed_s < self._every_s:
            return
        counters = capture.counters()
        lost = counters.ring_dropped
        if self._live:
            rate = (packets - self._packets) / elapsed_s
            line = f"{amount(packets, 'packet')}, {rate:,.0f}/s, {lost:,} lost to a full ring"
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._shown = True
        elif lost != self._dropped:
            self.say(f"{amount(lost - self._dropped, 'packet')} lost to a full ring")
        self._last_s, self._packets, self._dropped = time.monotonic(), packets, lost


def _totals(tally: Tally, counters: Counters, elapsed_s: float) -> str:
    parts = [str(tally), f"{counters.ring_dropped:,} lost to a full ring"]
    if counters.sampled_out:
        parts.append(f"{counters.sampled_out:,} left out by sampling")
    if counters.roce != counters.matched:
        parts.append(f"{counters.roce - counters.matched:,} others filtered out")
    if counters.unreadable:
        parts.append(f"{counters.unreadable:,} too large or unreadable")
    return f"{', '.join(parts)}; {elapsed_s:.1f} s"


@contextmanager
def _ending_on_signals(capture: LiveSource) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda *_: capture.stop())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settings(args: argparse.Namespace, status: _Status) -> dict[str, Any]:
    """Returns the parameters that captures of both kinds take."""
    from livedma._native.tap import SNAPLEN_MAX, SNAPLEN_MIN

    snaplen = args.snaplen or SNAPLEN_MAX
    if not SNAPLEN_MIN <= snaplen <= SNAPLEN_MAX:
        args.wrong_use(f"--snaplen takes {SNAPLEN_MIN} to {SNAPLEN_MAX} bytes")
    return {
        "direction": args.direction,
        "filters": filters_of(args),
        "snaplen": snaplen,
        "sample": args.sample,
        "ring_bytes": args.ring,
        "count": args.count,
        "seconds": args.seconds,
        "say": status.say,
    }


def _start_interface(args: argparse.Namespace, settings: dict[str, Any]) -> LiveSource:
    try:
        # Only captures of an interface need libbpf.
        from livedma.capture.live import Capture
    except ImportError as error:
        raise CaptureError(f"capturing needs libbpf: apt install libbpf1 ({error})") from None
    try:
        return Capture(
            args.iface, hook=args.hook, replace=args.replace, verbose=args.verbose, **settings
        )
    except CaptureError as error:
        if isinstance(error.__cause__, PermissionError) and os.geteuid():
            raise PrivilegeError("loading BPF programs needs root") from None
        raise


def _start(args: argparse.Namespace, status: _Status) -> LiveSource:
    if (args.iface is None) == (args.device is None):
        args.wrong_use("give either an interface or --device ADDR")
    settings = _settings(args, status)
    if args.device is None:
        return _start_interface(args, settings)
    if args.hook != "auto" or args.replace or args.verbose:
        args.wrong_use("--hook, --replace and --verbose are for interfaces: a device needs no BPF")
    from livedma.capture.device import DeviceCapture

    return DeviceCapture(args.device, **settings)


def run(args: argparse.Namespace) -> int:
    kind = args.format or ("json" if args.json else "text")
    tally, status = Tally(), _Status()
    start_s = time.monotonic()
    with (
        _start(args, status) as capture,
        _ending_on_signals(capture),
        open_output(kind, args.write) as out,  # last: a capture that fails keeps the file
    ):
        name = args.iface or args.device
        status.say(f"{name}: {capture.modes}; Ctrl-C ends it")
        if capture.outlives_kill:
            status.say("this kernel has no tcx: if livedma is killed, its tc filters stay")
        sink = open_sink(
            kind,
            out,
            color=colors_wanted(args.write),
            interface=name,
            link=capture.link,
            snaplen=args.snaplen or 0,
        )
        try:
            for batch in capture:
                if len(batch):
                    status.before_output()
                    sink.write(batch)
                    out.flush()
                    tally.add(batch)
                status.update(capture, tally.packets)
        finally:
            counters = capture.counters()
            sink.close(CaptureTotals(counters.matched, counters.ring_dropped))
            status.clear()
            print(_totals(tally, counters, time.monotonic() - start_s), file=sys.stderr)
    return 0
