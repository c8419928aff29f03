# SPDX-License-Identifier: BSD-2-Clause
"""Describes all commands and their options from the parser, for manuals of all kinds."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["Argument", "Command", "described"]


@dataclass(frozen=True, slots=True)
class Argument:
    """Describes an option or a positional.

    invocation: `-s, --size SIZE`. names: its option strings; empty for a positional.
    value: the word that stands for its value (SIZE), or None if it takes none.
    """

    invocation: str
    help: str
    names: tuple[str, ...]
    value: str | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """Describes a command. name: `livedma guard add`. groups: titles, each with its arguments."""

    name: str
    summary: str
    usage: str
    description: str
    epilog: str
    groups: tuple[tuple[str, tuple[Argument, ...]], ...]
    commands: tuple[Command, ...]


def described(parser: argparse.ArgumentParser, summary: str = "") -> Command:
    """Describes a parser and, below it, the parsers of its commands."""
    usage = parser.format_usage().removeprefix("usage: ")
    return Command(
        name=parser.prog,
        summary=summary,
        usage=re.sub(r"\s+", " ", usage).strip(),
        description=parser.description or "",
        epilog=parser.epilog or "",
        groups=tuple(_groups(parser)),
        commands=tuple(_commands(parser)),
    )


def _groups(parser: argparse.ArgumentParser) -> list[tuple[str, tuple[Argument, ...]]]:
    formatter = parser._get_formatter()
    ret = []
    for group in parser._action_groups:
        found = tuple(
            Argument(
                formatter._format_action_invocation(action),
                formatter._expand_help(action) if action.help else "",
                tuple(action.option_strings),
                None if action.nargs == 0 else str(action.metavar or action.dest),
                tuple(map(str, action.choices or ())),
            )
            for action in group._group_actions
            if action.help != argparse.SUPPRESS and not _is_commands(action)
        )
        if found:
            ret.append((group.title or "", found))
    return ret


def _is_commands(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _commands(parser: argparse.ArgumentParser) -> list[Command]:
    ret = []
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        named: Any = action
        summaries = {one.dest: one.help or "" for one in named._choices_actions}
        ret += [described(one, summaries.get(name, "")) for name, one in named.choices.items()]
    return ret
