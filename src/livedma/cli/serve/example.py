# SPDX-License-Identifier: BSD-2-Clause
"""Writes an example of all keys: `python -m livedma.cli.serve.example packaging/livedma.toml`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from livedma.cli.serve.options import add_options

__all__ = ["render"]

_HEAD = """\
# What `livedma serve --config FILE` reads: every key there is, with what it is unless you say
# otherwise, or where that is nothing, an example. Keys are the long options; docs/running.md says
# which of them a reload changes. Made by `make docs`.
"""
_EXAMPLES = {
    "state": "/var/lib/livedma",
    "control": "/run/livedma/serve",
    "listen": ["10.0.0.1", "fd00::1"],
    "allow": ["10.0.0.0/8", "fd00::/8"],
    "web": "127.0.0.1:20080",
    "web-token": "/var/lib/livedma/web-token",
    "web-name": ["storage.example.org"],
    "grace": 90,
    "budget": "4GiB",
    "pin-limit": "1GiB",
    "objective-p99": "10ms",
    "store-width": 4,
}
_NOT_HERE = ("help", "config")


def render() -> str:
    return "\n".join([_HEAD, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    parser = argparse.ArgumentParser(prog="livedma serve")
    add_options(parser)
    yield "# What is exported."
    yield 'directory = "/srv/data"'
    for group in parser._action_groups:
        options = [one for one in group._group_actions if one.option_strings]
        options = [one for one in options if one.dest not in _NOT_HERE]
        if options:
            yield from ("", f"### {group.title}")
        for one in options:
            key = one.option_strings[-1].removeprefix("--")
            text = (one.help or "")[:1].upper() + (one.help or "")[1:] + "."
            yield from ("", *textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# "))
            yield f"#{key} = {_written(_value(key, one))}"


def _value(key: str, option: argparse.Action) -> Any:
    if option.default in (None, []):
        return _EXAMPLES[key]
    return option.default


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    text = str(value)
    return text if text.isdecimal() else f'"{text}"'


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
