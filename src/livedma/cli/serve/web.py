"""The page of livedma serve: its options, and what is said about it."""

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

__all__ = ["add_options", "default_token", "listening", "page"]


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a page for browsers").add_argument
    add(
        "--web",
        metavar="ADDR:PORT",
        nargs="?",
        type=_where,
        const=Where(),
        help=f"there, or at a socket that was handed down, fd:N ({Where().authority} if it is "
        "named alone, which is after DIR; no page)",
    )
    add(
        "--web-token",
        metavar="FILE",
        type=Path,
        help="what those have to know who change something there; it is made if it is missing "
        "(a new one beside the control socket)",
    )
    add(
        "--web-name",
        metavar="NAME",
        action="append",
        default=[],
        help="a proxy in front of the page calls it so; several times if need be",
    )


def _where(text: str) -> Where:
    try:
        return Where.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def default_token(control: Path) -> Path:
    """Where the token is, unless somebody says so: beside the control socket."""
    return Path(f"{control}.token")


@contextmanager
def listening(args: argparse.Namespace) -> Iterator[socket.socket | None]:
    """Before anything else is there: a port may be somebody's. None: no page is wanted."""
    if args.web is None:
        yield None
        return
    import livedma.ui.web.server  # noqa: F401 - takes a while, which clients would wait later

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
    """control: the socket's path."""
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
            say("  warning: whoever reaches this address can read the page; the token is for acts")
        yield


def _is_journal(fd: int) -> bool:
    """What is said there is kept, and others may read it (sd_journal_stream_fd(3))."""
    found = os.fstat(fd)
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
