# SPDX-License-Identifier: BSD-2-Clause
"""livedma why: tells what limits a server's connections, or makes a session slow."""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from livedma.cli.progress import Progress
from livedma.errors import LivedmaError

_EXAMPLES = """examples:
  livedma why                              what limits each connection of the server that runs here
  livedma why 5f0c                         why the session whose id begins so is slow
  livedma why --json | jq -r .limit
  livedma why --control /run/livedma/serve-4711

`livedma serve` prints where its control socket is."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "why",
        help="what limits a server's connections, or makes a session slow",
        description="Asks a running server what limits its connections, or why one "
        "session is slow: its own slots, its connection's memory, credits or send queue, the "
        "store, the CPU, the network, or nothing.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("session", metavar="SESSION", nargs="?", help="its id, or the beginning of it")
    add("--control", metavar="PATH", type=Path, help="the server's socket (of the one that runs)")
    add("--json", action="store_true", help="print an object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from livedma.cli.paint import Paint
    from livedma.nfs.control import Control

    with (
        Progress().waiting("waiting for the server"),
        Control(args.control or the_server()) as control,
    ):
        answer = control.ask("why", session=args.session)
    lines = Paint.on_output().folded(answer["lines"])
    print(json.dumps(answer) if args.json else "\n".join(lines))
    return 0


def the_server() -> Path:
    """Returns the control socket of the one server that runs in a default place.

    If no server is root's own, root finds the servers of other users, too.
    """
    from livedma.cli.serve.places import control_directories, of_other_users

    directories = control_directories()
    found = _answered(directories)
    if not found and os.geteuid() == 0:
        found = _answered(of_other_users())
    if len(found) == 1:
        return found[0]
    if not found:
        places = " or ".join(map(str, directories))
        raise LivedmaError(f"no server has its control socket in {places}: use --control PATH")
    names = " ".join(map(str, found))
    raise LivedmaError(f"{len(found)} servers run here: use --control with one of {names}")


def _answered(directories: Iterable[Path]) -> list[Path]:
    """Returns the control sockets in these directories at which a server listens."""
    from livedma.nfs.control import is_answered

    found = dict.fromkeys(path for place in directories for path in _sockets(place))
    return [path for path in found if is_answered(path)]


def _sockets(directory: Path) -> list[Path]:
    """Returns this user's sockets only: in a shared directory other users may have put anything.
    Root may also ask a service, whose socket belongs to the directory's owner.
    """
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return []
    owners = {os.geteuid()}
    if os.geteuid() == 0:
        owners.add(os.stat(directory).st_uid)
    return [
        Path(entry.path)
        for entry in entries
        if entry.name.partition("-")[0] == "serve" and _is_socket_of(entry, owners)
    ]


def _is_socket_of(entry: os.DirEntry[str], owners: set[int]) -> bool:
    found = entry.stat(follow_symlinks=False)
    return stat.S_ISSOCK(found.st_mode) and found.st_uid in owners
