# SPDX-License-Identifier: BSD-2-Clause
"""livedma migrate: moves the sessions of a running server's connection to a larger one."""

from __future__ import annotations

import argparse
import json
from typing import Any

from livedma.cli import asking, units
from livedma.cli.extend import add_arguments

_EXAMPLES = """examples:
  livedma migrate 1 64MiB                  connection 1 of the server that runs here
  livedma migrate 1 64MiB --credits 256 --control /run/livedma/serve-4711

`livedma why` and `livedma top` show the numbers of connections. The server's log tells what became
of it as a line `done`, with the pause of a client that was cut, or `failed`."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "migrate",
        help="move the sessions of a connection to a larger one",
        description="Has the client of a connection move all its sessions to a new one that begins "
        "with SIZE of memory. A client that cannot be asked, such as the kernel's, is cut between "
        "two calls and comes back to the larger connection: its sessions pause meanwhile. It is "
        "refused if --budget has no room for it, or if the connection is over TCP.",
        epilog=_EXAMPLES,
    )
    add_arguments(parser)
    parser.add_argument(
        "--credits",
        metavar="N",
        type=units.positive,
        help="calls that the client may have under way then (what goes with SIZE)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    answer = asking.ask(
        args, "migrate", connection=args.connection, bytes=args.size, credits=args.credits
    )
    print(json.dumps(answer) if args.json else f"connection {args.connection}: {answer['done']}")
    return 0
