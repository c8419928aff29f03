# SPDX-License-Identifier: BSD-2-Clause
"""Joins a server's settings: its command line counts first, then its file, then the defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from livedma.cli.serve import web
from livedma.cli.serve.bounds import WrongUse
from livedma.cli.serve.config_file import read
from livedma.cli.serve.options import add_options

__all__ = ["Settings", "WrongUse", "keys"]

_NOT_IN_FILES = ("help", "config")


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds all settings. words: the command line. values: of all options, by attribute name."""

    words: tuple[str, ...]
    values: argparse.Namespace

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """Reads the command line, and the file that it names. Raises ConfigError if the file cannot
        be read or something in it is wrong; WrongUse if --web has a value that is no address.
        """
        options = keys()
        values = {one.dest: _default(one) for one in options.values()}
        given = _given(words)
        file: Path | None = given.get("config")
        values["config"] = file
        if file is not None:
            found = read(file, options)
            values |= {options[key].dest: value for key, value in found.items()}
        values |= given
        try:
            values["web"], values["directory"] = web.settled(values["web"], values["directory"])
        except ValueError as error:
            raise WrongUse(f"--web: {error}") from None
        return cls(tuple(words), argparse.Namespace(**values))

    def again(self) -> Self:
        """Returns the settings with the file as it is now."""
        return self.of(self.words)


def keys() -> Mapping[str, argparse.Action]:
    """Returns the keys that a file may have: long options, and the directory."""
    found = {}
    for action in _parser()._actions:
        name = next((one for one in action.option_strings if one.startswith("--")), action.dest)
        key = name.removeprefix("--")
        if key not in _NOT_IN_FILES:
            found[key] = action
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="livedma serve")
    add_options(parser)
    return parser


def _given(words: Sequence[str]) -> dict[str, Any]:
    """Returns what the command line says, without defaults."""
    parser = _parser()
    for action in parser._actions:
        # argparse passes a positional's default through its type: SUPPRESS would become a path.
        action.default = argparse.SUPPRESS if action.option_strings else None
    given = vars(parser.parse_args(words))
    return {name: value for name, value in given.items() if (name, value) != ("directory", None)}


def _default(action: argparse.Action) -> Any:
    if isinstance(action.default, str) and callable(action.type):
        return action.type(action.default)
    return action.default
