"""What a server is told in the end: its command line, then its file, then the defaults."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from livedma.cli.serve.config_file import read
from livedma.cli.serve.options import add_options
from livedma.errors import LivedmaError

__all__ = ["Settings", "WrongUse", "keys"]

_NOT_IN_FILES = ("help", "config")


class WrongUse(LivedmaError):
    """Options that do not go together."""


@dataclass(frozen=True, slots=True)
class Settings:
    """words: of the command line. values: of all options, by the names of their attributes."""

    words: tuple[str, ...]
    values: argparse.Namespace

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """ConfigError: the file cannot be read, or something in it is wrong."""
        options = keys()
        values = {one.dest: _default(one) for one in options.values()}
        given = _given(words)
        file: Path | None = given.get("config")
        values["config"] = file
        if file is not None:
            found = read(file, options)
            values |= {options[key].dest: value for key, value in found.items()}
        return cls(tuple(words), argparse.Namespace(**{**values, **given}))

    def again(self) -> Self:
        """With the file as it is now."""
        return self.of(self.words)


def keys() -> Mapping[str, argparse.Action]:
    """What a file may say: long options, and the directory."""
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
    """What the command line says, and nothing else."""
    parser = _parser()
    for action in parser._actions:
        # That of an argument goes through its type, and would come back as something else.
        action.default = argparse.SUPPRESS if action.option_strings else None
    given = vars(parser.parse_args(words))
    return {name: value for name, value in given.items() if (name, value) != ("directory", None)}


def _default(action: argparse.Action) -> Any:
    if isinstance(action.default, str) and callable(action.type):
        return action.type(action.default)
    return action.default
