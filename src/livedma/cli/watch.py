# SPDX-License-Identifier: BSD-2-Clause
"""livedma watch: shows the sessions of any NFS/RDMA server or client on this host."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from livedma import extras
from livedma.cli import units
from livedma.cli.interrupts import Interrupts
from livedma.cli.progress import Progress
from livedma.ui.web.where import Where

if TYPE_CHECKING:
    from livedma.cli.watch_showing import Showing
    from livedma.monitor.source import Source
    from livedma.ui.watch.views import Total, View, Views

_METRICS = Where(port=20081)
_PORTS = (20049,)
_PORTS_MOST = 8
_SESSIONS = 100  # with series of their own

_EXAMPLES = """examples:
  livedma watch                            all interfaces that may carry RoCE
  livedma watch eth0 --count 10 > seen     ten seconds of it, as text
  livedma watch eth0 --json | jq -c '.sessions[] | [.id, .operations]'
  livedma watch --inside                   inside the kernel's NFS server on this host, TCP too
  livedma watch --metrics                  for Prometheus, too
  livedma top --watch                      to sort, to filter, and to see the last minute

It needs root: it looks at packets with BPF. Ctrl-C or q ends it."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "watch",
        help="sessions of any NFS/RDMA server or client on this host",
        description="Shows the sessions of whatever NFS/RDMA server or client is on this host, "
        "livedma's or the kernel's, with the latency and bandwidth of each. What it does not see, "
        "or not yet, it says.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("iface", metavar="IFACE", nargs="*", help="look at these (all that may carry RoCE)")
    add_source_options(parser)
    add("--interval", metavar="TIME", type=units.duration, default=1.0, help="of a snapshot (1s)")
    add("--count", metavar="N", type=units.positive, help="end after N snapshots")
    add("--json", action="store_true", help="print an object for each snapshot, one a line")
    add("--ascii", action="store_true", help="draw with ASCII alone (where the locale says so)")
    add(
        "--metrics",
        metavar="ADDR:PORT",
        nargs="?",
        type=_where,
        const=_METRICS,
        help=f"answer there at /metrics, for Prometheus ({_METRICS.authority} if no address is "
        "given)",
    )
    add(
        "--metrics-sessions",
        metavar="N",
        type=units.positive,
        default=_SESSIONS,
        help=f"sessions that have series of their own; all others make one together ({_SESSIONS})",
    )
    parser.set_defaults(run=run, wrong_use=parser.error)


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a source, and tell it where to look."""
    parser.add_argument(
        "--port",
        metavar="PORT",
        type=units.port,
        action="append",
        help="servers listen there: connections that are made from now on are seen from their "
        "start; several times if need be (20049). Others are learnt from their traffic",
    )
    parser.add_argument(
        "--inside",
        action="store_true",
        help="look into this host's kernel NFS server, over RDMA and TCP, and not at the wire",
    )


def source_of(args: argparse.Namespace, interfaces: list[str]) -> Source:
    """Returns the source that the arguments choose. This is the one place that knows them all: a
    further source is an option of `add_source_options`, and a line here.
    """
    if args.inside:
        if interfaces or args.port:
            args.wrong_use("--inside looks at no interface, and at all ports")
        from livedma.monitor.nfsd import NfsdSource

        return NfsdSource()
    from livedma.ui.watch.wire import WireSource

    ports = tuple(dict.fromkeys(args.port or _PORTS))
    if len(ports) > _PORTS_MOST:
        args.wrong_use(f"--port takes {_PORTS_MOST} ports at most")
    return WireSource(interfaces, ports)


def _where(text: str) -> Where:
    try:
        return Where.parse(text, port=_METRICS.port)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    from livedma.ui.watch.views import Views

    if not 0.1 <= args.interval <= 60:
        args.wrong_use("--interval is 0.1s to 60s")
    if args.metrics is not None:
        for module in ("aiohttp", "prometheus_client"):
            extras.require(module)
    with closing(source_of(args, args.iface)) as source, ExitStack() as stack:
        show = _showing(args)
        tell = stack.enter_context(_metrics(args))
        with Progress().waiting("loading BPF programs"):
            source.attach()
        views, interrupts = Views(source), Interrupts()
        print(f"livedma: watching {source.where}; Ctrl-C ends it", file=sys.stderr, flush=True)

        async def watch() -> None:
            stop = asyncio.Event()
            with interrupts.calling(stop.set), show.opened(stop):
                async for view in _each(views, args.interval, args.count, stop):
                    tell(view)
                    show.view(view)

        asyncio.run(watch())
    print(_summary(views.total, views.began_s), file=sys.stderr)
    return 0


async def _each(
    views: Views, interval_s: float, count: int | None, stop: asyncio.Event
) -> AsyncIterator[View]:
    """Yields a view at the end of each interval, until there were so many; or, once it is to stop,
    what happened until then.
    """
    due_s = time.monotonic()
    left = count
    while (left is None or left) and not stop.is_set():
        due_s = max(due_s + interval_s, time.monotonic())  # those that were missed are left out
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), due_s - time.monotonic())
        yield views.next()
        left = None if left is None else left - 1


def _showing(args: argparse.Namespace) -> Showing:
    from livedma.cli import watch_showing as showing

    if args.json:
        return showing.Objects()
    if showing.can_draw():
        return showing.Live(args.ascii)
    return showing.Nothing() if args.metrics is not None else showing.Text()


@contextmanager
def _metrics(args: argparse.Namespace) -> Iterator[Callable[[View], None]]:
    """Yields a function that takes each view and counts it for metrics."""
    if args.metrics is None:
        yield lambda _: None
        return
    from livedma.ui.watch.endpoint import Endpoint
    from livedma.ui.watch.metrics import WatchMetrics
    from livedma.ui.web.where import listening

    metrics = WatchMetrics(args.metrics_sessions)
    with listening(args.metrics) as sock, Endpoint(sock, metrics.render):
        host, port = sock.getsockname()[:2]
        url = f"http://{Where(host, port).authority}/metrics"
        print(f"livedma: metrics at {url}", file=sys.stderr, flush=True)
        yield metrics.add


def _summary(total: Total, began_s: float) -> str:
    from livedma.control.words import size
    from livedma.ui.watch.views import words_of_losses
    from livedma.wire.words import amount

    seconds = time.time() - began_s
    if not total.connections_most:
        return f"livedma: no NFS/RDMA traffic in {seconds:.1f} s"
    words = (
        f"livedma: {amount(total.operations, 'operation')} in {seconds:.1f} s, "
        f"{size(total.read_bytes)} read, {size(total.written_bytes)} written; "
        f"at most {amount(total.connections_most, 'connection')} and "
        f"{amount(total.sessions_most, 'session')} at a time"
    )
    return "; ".join((words, *words_of_losses(total.losses)))
