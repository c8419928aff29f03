# SPDX-License-Identifier: BSD-2-Clause
"""Writes the reference from the code: `python -m livedma.cli.reference docs/reference.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from livedma.cli import parser
from livedma.cli.commands import Argument, Command, described
from livedma.cli.serve.reload import LIVE
from livedma.cli.serve.settings import keys

__all__ = ["render"]

_HEAD = """# Reference

Made from the code by `make docs`; a test says whether it is current. Commands, their options, the
keys of `livedma serve --config`, the methods of its control socket, and its page's HTTP. How to run
a server: [running](running.md).
"""
_KEYS = """## Keys of the configuration file

`livedma serve --config FILE` reads TOML: each long option is a key, and `directory` is DIR. Values
are written as on the command line, as strings or numbers; options that may be given several times
are lists, those without a value true or false. The command line counts more than the file. *live*:
a reload changes it; the others need a restart. `packaging/livedma.toml` has all of them.

| key | changes | what it is |
|---|---|---|"""
_METHODS = """## Methods of the control socket

One JSON object a line: `{"do": "extend", "connection": 1, "bytes": 1048576}`. More about it:
[storage](storage.md#the-control-socket).

| method | what it does |
|---|---|"""

_HTTP = """## HTTP

Of `livedma serve --web`. Reading needs no token; POST needs `Authorization: Bearer TOKEN` and
`Content-Type: application/json`, and is answered with `{"ok": text}` or `{"error": text}`.

| request | answer |
|---|---|
| `GET /` | the page; `/static/…` is what it is made of |
| `GET /stream` | server-sent events: `hello`, then each `frame` and each `decision` |
| `GET /frame` | the last frame, as JSON |
| `GET /why?session=ID` | what `livedma why` says |
| `GET /metrics` | for Prometheus: [metrics](metrics.md) |
| `GET /healthz` | whether it lives |
| `POST /do/extend` `{"connection": 1, "bytes": N}` | maps memory |
| `POST /do/shrink` `{"connection": 1, "bytes": N}` | takes memory away |
| `POST /do/policy` `{"name": "static"}` | another policy |"""


def render() -> str:
    top = described(parser())
    lines = [_HEAD, "| command | what for |", "|---|---|"]
    lines += [f"| [`{one.name}`](#{_anchor(one)}) | {_cell(one.summary)} |" for one in top.commands]
    lines += [line for group in top.groups for line in _options(*group)]
    for command in top.commands:
        lines += ["", *_command(command, 2)]
    lines += ["", _KEYS, *_config_keys(), "", _METHODS, *_methods(), "", _HTTP]
    return "\n".join(lines) + "\n"


def _anchor(command: Command) -> str:
    return command.name.replace(" ", "-")


def _command(command: Command, level: int) -> Iterator[str]:
    yield f"{'#' * level} {command.name}"
    yield from ("", command.description, "", "```", command.usage, "```")
    for title, arguments in command.groups:
        yield from _options(title, arguments)
    if command.epilog:
        yield from ("", "```", command.epilog.rstrip(), "```")
    for one in command.commands:
        yield from ("", *_command(one, level + 1))


def _options(title: str, arguments: tuple[Argument, ...]) -> Iterator[str]:
    shown = [one for one in arguments if "--help" not in one.names]
    if shown:
        yield from ("", f"| {title} | |", "|---|---|")
        yield from (f"| `{_cell(one.invocation)}` | {_cell(one.help)} |" for one in shown)


def _config_keys() -> Iterator[str]:
    for key, option in keys().items():
        yield f"| `{key}` | {'live' if key in LIVE else ''} | {_cell(option.help or '')} |"


def _methods() -> Iterator[str]:
    from livedma.cli.serve.running import Running
    from livedma.control.methods import Methods
    from livedma.nfs.server.facts import Facts

    nobody = cast(Any, None)  # the methods are inspected, not called
    found: Mapping[str, Callable[..., object]] = {
        **Facts(nobody).methods(),
        **Methods(nobody, nobody, nobody).methods(),
    }
    documented = [(name, inspect.signature(one), one) for name, one in sorted(found.items())]
    for name, signature, method in documented:
        yield f"| {_signature(name, signature)} | {_cell(inspect.getdoc(method) or '')} |"
    yield f"| `reload` | {_cell(inspect.getdoc(Running.reload) or '')} |"


def _signature(name: str, signature: inspect.Signature) -> str:
    parts = []
    for one in signature.parameters.values():
        default = "" if one.default is one.empty else f"={one.default}"
        parts.append(f"{one.name}{default}")
    return " ".join(f"`{part}`" for part in (name, *parts))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("%%", "%").split())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render())
