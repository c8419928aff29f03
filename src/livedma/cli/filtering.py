# SPDX-License-Identifier: BSD-2-Clause
"""Defines the options of capture and decode that choose packets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from livedma.capture.filters import Filters

__all__ = ["add_filters", "filters_of"]


def add_filters(parser: argparse.ArgumentParser) -> None:
    def add(name: str, metavar: str, text: str) -> None:
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=text)

    add("--host", "ADDR[/LEN]", "only from or to this address; more are alternatives")
    add("--src", "ADDR[/LEN]", "only from it")
    add("--dst", "ADDR[/LEN]", "only to it")
    add("--qp", "N", "only to this QP, or from it where the packet says so (DETH)")
    add("--op", "OP,OP", "only these: SEND, WRITE, READ, READ_RESPONSE, ACK, ATOMIC, CNP, …")


def filters_of(args: argparse.Namespace) -> Filters:
    """Returns the filters that the options describe. For a wrong value it calls args.wrong_use."""
    from livedma.capture.filters import Filters

    try:
        return Filters.parse(host=args.host, src=args.src, dst=args.dst, qp=args.qp, op=args.op)
    except ValueError as error:
        args.wrong_use(str(error))
        raise
