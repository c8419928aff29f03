# SPDX-License-Identifier: BSD-2-Clause
"""Defines the options of the page of livedma serve, and what the server prints about it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from livedma.ui.web.where import Where, is_local, url_of
from livedma.ui.web.where import listening as listening_at

if TYPE_CHECKING:
    import socket

    from livedma.control.running import Controlled
    from livedma.ui.web.app import Metrics

__all__ = ["add_options", "default_token", "listening", "page", "settled"]


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a page for browsers").add_argument
    add(
        "--web",
        metavar="ADDR:PORT",
        nargs="?",
        type=_where,
        const=Where(),
        help=f"there, or at a socket that was handed down, fd:N ({Where().authority} if no "
        "address is given; no page without this option)",
    )
    add(
        "--web-token",
        metavar="FILE",
        type=Path,
        help="the file of the secret that a change by the page needs; it is made if it is missing "
        "(a new one beside the control socket)",
    )
    add(
        "--web-name",
        metavar="NAME",
        action="append",
        default=[],
        help="a proxy in front of the page calls it so; several times if need be",
    )


def _where(text: str) -> Where | Path:
    """Reads an address. A directory is DIR behind a --web without a value: see `settled`."""
    if Path(text).is_dir():
        return Path(text)
    try:
        return Where.parse(text)
    except ValueError as error:
        hint = "; DIR goes before --web, or write --web=ADDR:PORT DIR" if "/" in text else ""
        raise argparse.ArgumentTypeError(f"{error}{hint}") from None


def settled(web: Where | Path | None, directory: Path | None) -> tuple[Where | None, Path | None]:
    """Returns where the page is, and what is exported. Raises ValueError if `web` is neither."""
    if not isinstance(web, Path):
        return web, directory
    if directory is None:
        return Where(), web
    return Where.parse(str(web)), directory


def default_token(control: Path) -> Path:
    """Returns where the token is without --web-token: beside the control socket."""
    return Path(f"{control}.token")


@contextmanager
def listening(args: argparse.Namespace) -> Iterator[socket.socket | None]:
    """Yields the page's socket, or None if no page is wanted. The server opens it before anything
    else: its port may be taken.
    """
    if args.web is None:
        yield None
        return
    import livedma.ui.web.server  # noqa: F401 - slow: later, clients would wait for it

    with listening_at(args.web) as sock:
        yield sock


@contextmanager
def page(
    args: argparse.Namespace,
    sock: socket.socket | None,
    it: Controlled,
    control: Path,
    say: Callable[[str], None],
    metrics: Metrics | None = None,
) -> Iterator[None]:
    """Serves the page during the block, if `sock` is given. control: the control socket's path."""
    if sock is None:
        yield
        return
    from livedma.ui.web import token as tokens
    from livedma.ui.web.server import Web

    with contextlib.ExitStack() as stack:
        if args.web_token is not None:
            path, token = args.web_token, tokens.kept(args.web_token)
        else:
            path = default_token(control)
            token = tokens.fresh(path)
            stack.callback(path.unlink, missing_ok=True)
        names = [*args.web_name, *([args.web.host] if args.web.fd is None else [])]
        stack.enter_context(Web(it, sock, token, names=names, metrics=metrics))
        is_kept = args.log_format != "text" or _is_journal(sys.stderr.fileno())
        say(f"  web page {url_of(sock, '' if is_kept else token)}")
        if is_kept:
            say(f"  its token is in {path}")
        if not is_local(sock):
            say("  warning: anyone at this address can read the page; only changes need the token")
        yield


def _is_journal(fd: int) -> bool:
    """Tells whether fd is the journal's, which keeps what it gets and which other users may read
    (sd_journal_stream_fd(3)).
    """
    found = os.fstat(fd)
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
