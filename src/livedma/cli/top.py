# SPDX-License-Identifier: BSD-2-Clause
"""livedma top: shows a server on the terminal, live."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livedma import extras
from livedma.cli import units
from livedma.cli.progress import Progress
from livedma.cli.watch import add_source_options, source_of
from livedma.errors import LivedmaError

if TYPE_CHECKING:
    from livedma.ui.feeds import Item
    from livedma.ui.top.app import Top
    from livedma.ui.top.glyphs import Glyphs
    from livedma.ui.top.lever import Act
    from livedma.ui.top.model import Model

_EXAMPLES = """examples:
  livedma top                              the server that runs here
  livedma top 10.0.0.1                     one that was started with --web 10.0.0.1:20080
  livedma top --once | less                all of it as text, once
  livedma top --watch eth0                 any NFS/RDMA server on this host, as `livedma watch`
  livedma top --once --json | jq '.snapshot.sessions | length'

Keys: ? shows them all; Enter says why a session is slow, / filters, + and - extend and shrink a
connection, q leaves.
NO_COLOR=1 takes the colours away; LC_ALL=C, or --ascii, all that is not ASCII."""

_FIRST_S = 15.0
_WIDTH = 120  # columns of text for an output that has no width


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "top",
        help="a server on the terminal: connections, sessions and decisions, live",
        description="Shows connections with their memory, credits and what limits them, sessions "
        "with what they do and wait for, and what is decided, as it happens.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add(
        "address",
        metavar="ADDR",
        nargs="?",
        help="HOST[:PORT] of a server's --web (the server that runs here)",
    )
    add("--control", metavar="PATH", type=Path, help="the server's socket (of the one that runs)")
    add(
        "--watch",
        metavar="IFACE",
        nargs="*",
        help="any servers and clients, as `livedma watch` sees them at these interfaces (all that "
        "may carry RoCE)",
    )
    add_source_options(parser)
    add(
        "--interval",
        metavar="TIME",
        type=units.duration,
        help="draw no more often, say 2s on a slow line (whenever there is something new)",
    )
    add("--ascii", action="store_true", help="draw with ASCII alone (where the locale says so)")
    add("--once", action="store_true", help="print it once, as text")
    add("--json", action="store_true", help="with --once: print the frame, an object")
    parser.set_defaults(run=run, wrong_use=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.address is not None and args.control is not None:
        args.wrong_use("ADDR and --control are two servers: give one")
    if args.watch is None and (args.port is not None or args.inside):
        args.wrong_use(f"{'--inside' if args.inside else '--port'} goes with --watch")
    if args.watch is not None and (args.address is not None or args.control is not None):
        args.wrong_use("--watch looks at any server: it goes without ADDR and --control")
    if args.json and not args.once:
        args.wrong_use("--json goes with --once")
    if args.interval is not None and not 0.1 <= args.interval <= 60:
        args.wrong_use("--interval is 0.1s to 60s")
    if not args.once:
        _check_terminal()
        extras.require("textual")
    return asyncio.run(_once(args) if args.once else _live(args))


def _check_terminal() -> None:
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(one is not None and one.isatty() for one in streams):
        raise LivedmaError("this is no terminal: `livedma top --once` prints the picture as text")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise LivedmaError(
            "this terminal cannot move its cursor (TERM is dumb or not set): "
            "`livedma top --once` prints the picture as text"
        )


async def _watched(args: argparse.Namespace) -> AsyncGenerator[Item, None]:
    from livedma.ui.watch.feed import watched

    with closing(source_of(args, args.watch)) as source:
        async with aclosing(watched(source)) as items:
            async for item in items:
                yield item


def _feed(args: argparse.Namespace) -> AsyncGenerator[Item, None]:
    from livedma.cli.why import the_server
    from livedma.ui.feeds import local, remote

    if args.watch is not None:
        return _watched(args)
    if args.address is not None:
        return remote(args.address)
    return local(args.control or the_server)


def _act(args: argparse.Namespace) -> Act | None:
    """Returns the function that pulls levers at the control socket. None with ADDR: a page wants a
    token, which top does not ask for; nor with --watch: what is watched from outside has none.
    """
    if args.watch is not None:
        return None
    from livedma.cli.why import the_server
    from livedma.ui.feeds import act

    return None if args.address is not None else partial(act, args.control or the_server)


def _glyphs(args: argparse.Namespace) -> Glyphs:
    from livedma.ui.top.glyphs import ASCII, fitting

    return ASCII if args.ascii else fitting()


async def _first(items: AsyncIterator[Item], model: Model, waiting: str) -> None:
    """Reads items up to the first frame. Raises LivedmaError if the server is not there; after the
    first frame top waits for it instead.
    """
    from livedma.control.show.frame import Frame
    from livedma.ui.feeds import Lost

    try:
        with Progress().waiting(waiting):
            async with asyncio.timeout(_FIRST_S):
                async for item in items:
                    if isinstance(item, Lost):
                        raise LivedmaError(item.reason)
                    model.take(item)
                    if isinstance(item, Frame):
                        return
    except TimeoutError:
        raise LivedmaError("the server answers, but has nothing to show yet") from None


def _waiting(args: argparse.Namespace) -> str:
    return "waiting for the server" if args.watch is None else "loading BPF programs"


async def _once(args: argparse.Namespace) -> int:
    from livedma.ui.top.model import Model
    from livedma.ui.top.plain import plain
    from livedma.ui.top.sessions import Sessions

    model = Model()
    async with aclosing(_feed(args)) as items:
        await _first(items, model, _waiting(args))
    if args.json:
        assert model.frame is not None
        print(json.dumps(model.frame.as_json()))
    else:
        width = shutil.get_terminal_size((_WIDTH, 24)).columns
        print(plain(model, Sessions(model), width, _glyphs(args)))
    return 0


async def _live(args: argparse.Namespace) -> int:
    from livedma.ui.top.model import Model

    model = Model()
    async with aclosing(_feed(args)) as items:
        first = asyncio.create_task(_first(items, model, _waiting(args)))
        top = await asyncio.to_thread(_load)  # while the server makes a frame
        await first
        app = top(model, items, _glyphs(args), args.interval, _act(args))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, app.exit)
        await app.run_async()
    return app.return_code or 0


def _load() -> type[Top]:
    """Imports the application. To import textual takes a while."""
    from livedma.ui.top.app import Top

    return Top
