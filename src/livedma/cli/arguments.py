# SPDX-License-Identifier: BSD-2-Clause
"""Reads the arguments of all commands, in any order, and reports mistakes in short sentences."""

from __future__ import annotations

import argparse
import itertools
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

__all__ = ["Parser", "did_you_mean"]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `: did you mean 'serve'?` if a known word is close to this one, or nothing."""
    from difflib import get_close_matches  # only mistakes need it

    close = get_close_matches(word, list(known), 1)
    return f": did you mean '{close[0]}'?" if close else ""


class _Page(argparse.HelpFormatter):
    """Wraps descriptions and epilogs at the terminal's width, and keeps examples as they stand.

    An example is an indented line, which may have a remark behind it, two spaces from it. A remark
    that is too long goes on below, in its own column.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks: list[str] = []
        for is_prose, group in itertools.groupby(text.splitlines(), key=_is_prose):
            lines = list(group)
            if is_prose:
                blocks.append(textwrap.fill("\n".join(lines), width))
            else:
                blocks += [_example(line, width) for line in lines]
        return textwrap.indent("\n".join(blocks), indent)


def _is_prose(line: str) -> bool:
    return bool(line) and not line.startswith(" ")


def _example(line: str, width: int) -> str:
    found = re.fullmatch(r"(\s+\S.*?\S\s{2,})(\S.*)", line)
    if found is None or len(line) <= width:
        return line
    remark = " " * len(found[1])
    wrapped = textwrap.fill(found[2], width, initial_indent=remark, subsequent_indent=remark)
    return found[1] + wrapped.lstrip()


class Parser(argparse.ArgumentParser):
    """Extends argparse's parser: options and positionals may come in any order.

    For a mistake it prints one sentence and where to find help, not the whole usage. Parsers of
    sub-commands have the same class; each refuses unknown words itself, under its own name.
    """

    _is_intermixing = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"formatter_class": _Page, **options})

    def error(self, message: str) -> NoReturn:
        from livedma.cli.paint import Paint

        sentence = Paint.on_errors().complaint(self.prog, message.removeprefix("argument "))
        self.exit(2, f"{sentence}\ntry '{self.prog} --help'\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        if self._is_intermixing:  # one of two passes, which leaves words for the other
            return super().parse_known_args(args, namespace)
        self._refuse_misspelt(args or ())
        if self._can_be_overtaken():
            self._is_intermixing = True
            try:
                found, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._is_intermixing = False
        else:
            found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def _can_be_overtaken(self) -> bool:
        """Tells whether argparse would end a positional at an option, though more words follow.

        argparse takes an optional positional for absent if another one stands before the option
        (`read-bw -s 64 HOST`), and a positional of any number for complete (`mem 1 --json 2`).
        """
        positionals = self._get_positional_actions()
        kinds = {one.nargs for one in positionals}
        exclusive = [
            one for group in self._mutually_exclusive_groups for one in group._group_actions
        ]
        if kinds & {argparse.PARSER, argparse.REMAINDER} or set(positionals) & set(exclusive):
            return False
        if kinds & {argparse.ZERO_OR_MORE, argparse.ONE_OR_MORE}:
            return True
        return len(positionals) > 1 and argparse.OPTIONAL in kinds

    def _refuse_misspelt(self, words: Sequence[str]) -> None:
        """Refuses a misspelt long option.

        It runs first: argparse would report the argument that the misspelt option hides as missing.
        """
        kinds = {one.nargs for one in self._get_positional_actions()}
        if kinds & {argparse.PARSER, argparse.REMAINDER}:  # these words may be for another program
            return
        for word in itertools.takewhile(lambda one: one != "--", words):
            name = word.partition("=")[0]
            known = any(one.startswith(name) for one in self._option_string_actions)
            if name.startswith("--") and not known:
                self._refuse([name])

    def _refuse(self, unknown: list[str]) -> NoReturn:
        options = [one.partition("=")[0] for one in unknown if one.startswith("-") and one != "--"]
        if not options:
            rest = " ".join(unknown)
            self.error(f"there is no place for {rest!r}: too many arguments")
        known = (name for name in self._option_string_actions if name.startswith("--"))
        hint = did_you_mean(options[0], known) if options[0].startswith("--") else ""
        self.error(f"unknown option {options[0]!r}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            what = (action.metavar or "word") if isinstance(action.metavar, str) else "word"
            hint = did_you_mean(str(value), known) or f": choose from {', '.join(known)}"
            self.error(f"there is no {what.lower()} {value!r}{hint}")
        hint = did_you_mean(str(value), known) or f" (choose from {', '.join(known)})"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}")
