# SPDX-License-Identifier: BSD-2-Clause
"""Formats a command's manual page, for man(1)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

from livedma.cli.commands import Command

__all__ = ["page"]


def page(command: Command, top: Command) -> str:
    """Returns a command's page. top: livedma itself, whose own page names all commands."""
    return "\n".join(_lines(command, top)) + "\n"


def _lines(command: Command, top: Command) -> Iterator[str]:
    name = command.name.replace(" ", "-")
    summary = command.summary or top.description.rstrip(".")
    yield f'.TH {name.upper()} 1 "" "livedma {version("livedma")}" "User Commands"'
    yield ".SH NAME"
    yield f"{_escaped(name)} \\- {_escaped(summary)}"
    yield ".SH SYNOPSIS"
    yield from _usage(command)
    yield ".SH DESCRIPTION"
    yield _escaped(command.description)
    yield from _options(command, ".SH")
    if command.commands:
        yield ".SH COMMANDS"
    for one in command.commands:
        if command is top:
            yield from (".TP", f"\\fB{_escaped(one.name.replace(' ', '-'))}\\fR(1)")
            yield _escaped(one.summary)
        else:
            yield f".SS {_escaped(one.name.removeprefix('livedma '))}"
            yield from _usage(one)
            yield from (".PP", _escaped(one.description))
            yield from _options(one, ".PP")
            yield from _verbatim(one.epilog)
    if command.epilog:
        yield ".SH EXAMPLES" if command is not top else ".SH MORE"
        yield from _verbatim(command.epilog.removeprefix("examples:\n"))
    if command is not top:
        yield from (".SH SEE ALSO", "\\fBlivedma\\fR(1)")


def _usage(command: Command) -> Iterator[str]:
    words = command.usage.removeprefix(command.name)
    yield f"\\fB{_escaped(command.name)}\\fR{_escaped(words)}"


def _options(command: Command, heading: str) -> Iterator[str]:
    for title, arguments in command.groups:
        yield f".SH {_escaped(title.upper())}" if heading == ".SH" else ".PP"
        for one in arguments:
            yield from (".TP", f"\\fB{_escaped(one.invocation)}\\fR", _escaped(one.help))


def _verbatim(text: str) -> Iterator[str]:
    if text:
        yield from (".PP", ".nf", *map(_escaped, text.splitlines()), ".fi")


def _escaped(text: str) -> str:
    """Escapes a text, so that roff prints it literally: a hyphen is no dash, a dot no request."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha")
    text = (
        text.replace("~", "\\(ti").replace("`", "\\(ga").replace("…", "...").replace("'", "\\(aq")
    )
    return f"\\&{text}" if text.startswith(".") else text
