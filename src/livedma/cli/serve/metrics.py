"""Metrics of livedma serve: its options, and what answers at /metrics of its page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livedma.control.running import Controlled
    from livedma.nfs.service import NfsService

__all__ = ["add_options", "rendering"]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("metrics, at /metrics of the page").add_argument(
        "--metrics-sessions",
        metavar="N",
        type=_count,
        default="100",
        help="sessions that have series of their own; all others make one together (100)",
    )


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of sessions: write 100, or 0")
    return int(text)


@contextmanager
def rendering(
    args: argparse.Namespace, service: NfsService, it: Controlled
) -> Iterator[Callable[[str], tuple[bytes, str]] | None]:
    """None: no page is wanted."""
    if args.web is None:
        yield None
        return
    from livedma.ui.metrics import Metrics

    wants_bpf = args.monitor == "auto" and bool(service.rdma)
    with Metrics(
        service, it.controller, sessions=args.metrics_sessions, wants_bpf=wants_bpf
    ) as metrics:
        yield metrics.render
