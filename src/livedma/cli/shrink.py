# SPDX-License-Identifier: BSD-2-Clause
"""livedma shrink: takes DMA memory from a connection of a running server."""

from __future__ import annotations

from typing import Any

from livedma.cli.extend import add_arguments, run

_EXAMPLES = """examples:
  livedma shrink 1 4MiB                    of connection 1 of the server that runs here
  livedma shrink 1 4MiB --control /run/livedma/serve-4711

`livedma why` and `livedma top` show the numbers of connections. The server's log tells it as a line
`hand`; a policy maps more again if requests wait for it."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "shrink",
        help="take DMA memory from a connection of a running server",
        description="Takes memory out of a connection's window, as buffers become free. Credits "
        "stay as they are, so that calls may have to wait for the buffers that are left.",
        epilog=_EXAMPLES,
    )
    add_arguments(parser)
    parser.set_defaults(run=run, do="shrink")
