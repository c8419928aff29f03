# SPDX-License-Identifier: BSD-2-Clause
"""livedma serve: exports a directory over NFSv4.1 and 4.2."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from livedma.cli.serve.options import add_options
from livedma.cli.serve.places import control_directory

__all__ = ["control_directory", "register", "run"]

_EXAMPLES = """examples:
  livedma serve /srv/data                   root is nobody: --squash none
  livedma serve /srv/data --read-only --allow 10.0.0.0/8 --allow fd00::/8
  livedma serve /srv/data --listen 10.0.0.1 --tcp 12049 --window 256MiB
  livedma serve --config /etc/livedma.toml  SIGHUP has it read again

and a client:
  mount -o vers=4.1,proto=rdma,port=20049 HOST:/ /mnt
  mount -o vers=4.2 HOST:/ /mnt             over TCP"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="export a directory over NFSv4.1 and 4.2",
        description="Exports DIR, which is the root of what clients mount, until Ctrl-C or "
        "SIGTERM; a second one ends it at once.",
        epilog=_EXAMPLES,
    )
    add_options(parser)
    parser.set_defaults(run=run, wrong_use=parser.error)


def run(args: argparse.Namespace) -> int:
    from livedma.cli.serve.bounds import WrongUse
    from livedma.cli.serve.config_file import ConfigError
    from livedma.cli.serve.running import serve
    from livedma.cli.serve.settings import Settings

    try:
        return serve(Settings.of(args.words))
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"livedma: {line}", file=sys.stderr)
        return 2
    except WrongUse as error:
        args.wrong_use(str(error))
        raise
