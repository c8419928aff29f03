# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands that ask a running server for one thing: it has their options, and asks the
question."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add_options", "ask"]


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--control", metavar="PATH", type=Path, help="the server's socket (of the one that runs)")
    add("--json", action="store_true", help="print an object")


def ask(args: argparse.Namespace, do: str, **parameters: object) -> Any:
    """Asks the server that --control names, or the one that runs here; returns its answer."""
    from livedma.cli.why import the_server
    from livedma.nfs.control import Control

    with Control(args.control or the_server()) as control:
        return control.ask(do, **parameters)
