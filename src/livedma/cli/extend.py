# SPDX-License-Identifier: BSD-2-Clause
"""livedma extend: maps more DMA memory for a connection of a running server."""

from __future__ import annotations

import argparse
import json
from typing import Any

from livedma.cli import asking, units

_EXAMPLES = """examples:
  livedma extend 1 4MiB                    for connection 1 of the server that runs here
  livedma extend 1 4MiB --control /run/livedma/serve-4711

`livedma why` and `livedma top` show the numbers of connections. The server's log tells it as a line
`hand`; a policy may take back later what is not needed."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "extend",
        help="map more DMA memory for a connection of a running server",
        description="Maps more of a connection's window, with the credits that go with it, while "
        "it is in use. It is refused if the window or the server's --budget has no room for it, or "
        "if the connection is over TCP, whose memory is not managed.",
        epilog=_EXAMPLES,
    )
    add_arguments(parser)
    parser.set_defaults(run=run, do="extend")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that `extend` and `shrink` share."""
    add = parser.add_argument
    add("connection", metavar="CONNECTION", type=units.positive, help="its number")
    add("size", metavar="SIZE", type=units.size, help="how much: 512KiB, 4MiB")
    asking.add_options(parser)


def run(args: argparse.Namespace) -> int:
    answer = asking.ask(args, args.do, connection=args.connection, bytes=args.size)
    print(json.dumps(answer) if args.json else f"connection {args.connection}: {answer['done']}")
    return 0
