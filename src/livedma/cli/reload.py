# SPDX-License-Identifier: BSD-2-Clause
"""livedma reload: has a running server read its configuration again."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

_EXAMPLES = """examples:
  livedma reload                           of the server that runs here
  livedma reload --control /run/livedma/serve

Exit status 1 if the file is wrong: then nothing was changed. SIGHUP does the same, and the server's
log says what came of it."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "reload",
        help="have a server read its configuration again",
        description="Has a server that was started with --config read that file again, and says "
        "what has changed and what needs a restart. No session is dropped.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("--control", metavar="PATH", type=Path, help="the server's socket (of the one that runs)")
    add("--json", action="store_true", help="print an object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from livedma.cli.why import the_server
    from livedma.nfs.control import Control

    with Control(args.control or the_server()) as control:
        answer = control.ask("reload")
    print(json.dumps(answer) if args.json else answer["text"])
    return 0
