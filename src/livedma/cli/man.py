# SPDX-License-Identifier: BSD-2-Clause
"""livedma man: prints the manual, made of what --help says."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from livedma.errors import LivedmaError

_EXAMPLES = """examples:
  livedma man serve | man -l -
  livedma man --write /usr/local/share/man/man1"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "man",
        help="manual pages, of all that --help says",
        description="Prints the manual page of a command, or of livedma itself, for man(1).",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("command", metavar="COMMAND", nargs="?", help="whose (livedma's own)")
    add("--write", metavar="DIR", type=Path, help="write all pages there instead (none)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from livedma.cli import parser
    from livedma.cli.arguments import did_you_mean
    from livedma.cli.commands import described
    from livedma.cli.roff import page

    top = described(parser())
    pages = {one.name.replace(" ", "-"): one for one in (top, *top.commands)}
    if args.write is not None:
        try:
            args.write.mkdir(parents=True, exist_ok=True)
            for name, command in pages.items():
                (args.write / f"{name}.1").write_text(page(command, top))
        except OSError as error:
            raise LivedmaError(f"{args.write}: {error.strerror}") from None
        return 0
    wanted = "livedma" if args.command is None else f"livedma-{args.command}"
    if wanted not in pages:
        known = (name.removeprefix("livedma-") for name in pages)
        hint = did_you_mean(args.command, known) or ": `livedma --help` lists them"
        raise LivedmaError(f"there is no command {args.command!r}{hint}")
    print(page(pages[wanted], top), end="")
    return 0
