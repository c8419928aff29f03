# SPDX-License-Identifier: BSD-2-Clause
"""Defines the options for metrics of livedma serve, and answers at /metrics of the page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from livedma.cli.serve.bounds import Number

if TYPE_CHECKING:
    from livedma.control.running import Controlled
    from livedma.nfs.server.service import NfsService

__all__ = ["add_options", "rendering"]

_SESSIONS = Number(0, 16384)  # a server has no more sessions


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("metrics, at /metrics of the page").add_argument(
        "--metrics-sessions",
        metavar="N",
        type=_SESSIONS,
        default="100",
        help=f"sessions that have series of their own, {_SESSIONS}; all others make one together "
        "(100)",
    )


@contextmanager
def rendering(
    args: argparse.Namespace, service: NfsService, it: Controlled
) -> Iterator[Callable[[str], tuple[bytes, str]] | None]:
    """Yields the function that answers at /metrics, or None if no page is wanted."""
    if args.web is None:
        yield None
        return
    from livedma.ui.metrics import Metrics

    wants_bpf = args.monitor == "auto" and bool(service.rdma)
    with Metrics(
        service, it.controller, sessions=args.metrics_sessions, wants_bpf=wants_bpf
    ) as metrics:
        yield metrics.render
