# SPDX-License-Identifier: BSD-2-Clause
"""livedma policy: says or sets what a running server does when memory is short."""

from __future__ import annotations

import argparse
import json
from typing import Any

from livedma.cli import asking

_EXAMPLES = """examples:
  livedma policy                           which one decides at the server that runs here
  livedma policy static                    from now on it only watches
  livedma policy --json | jq -r .policy

The policies are static, extend, spread and migrate: docs/control.md says what each of them does. A
restart begins with the server's --policy again."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "policy",
        help="say or set the policy of a running server",
        description="Prints the policy by which a running server decides about DMA memory; with "
        "NAME, sets another one. Connections stay as they are, and no session is dropped.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="another policy (none is set)")
    asking.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    answer = asking.ask(args, "policy", name=args.name)
    dry = " (dry run)" if answer["dry_run"] else ""
    print(json.dumps(answer) if args.json else f"{answer['policy']}{dry}")
    return 0
