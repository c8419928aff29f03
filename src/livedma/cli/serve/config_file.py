# SPDX-License-Identifier: BSD-2-Clause
"""Reads a file of options: TOML, whose keys are the long options.

Each value is checked by the type that its option has on the command line.
"""

from __future__ import annotations

import argparse
import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from livedma.errors import LivedmaError

__all__ = ["ConfigError", "read"]

_KINDS = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


class ConfigError(LivedmaError):
    """Says what is wrong with a file, a line for each mistake."""


class _Wrong(Exception):
    """Says what is wrong with a value."""


def read(path: Path, options: Mapping[str, argparse.Action]) -> dict[str, Any]:
    """Returns the file's values by key. Raises ConfigError, which names all mistakes at once."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is no UTF-8") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(path, text, str(error))) from None
    ret, wrong = {}, []
    for key, value in found.items():
        try:
            ret[key] = _judged(key, value, options)
        except _Wrong as error:
            line = _line_of(text, key)
            where = f"{path}:{line}" if line else str(path)
            wrong.append((line, f"{where}: {error}"))
    if wrong:
        raise ConfigError("\n".join(message for _, message in sorted(wrong)))
    return ret


def _syntax(path: Path, text: str, said: str) -> str:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", said)
    if match is None:
        return f"{path}: {said}"
    line = match[2] or len(text.splitlines())
    what = match[1][:1].lower() + match[1][1:]
    return f"{path}:{line}{':' + match[3] if match[3] else ''}: this is no TOML: {what}"


def _line_of(text: str, key: str) -> int:
    """Returns the line that sets a key, as far as that can be told without a parser; 0: unknown."""
    name = re.escape(key)
    pattern = re.compile(rf"""\s*(?:(["']?){name}\1\s*[=.]|\[+\s*(["']?){name}\2\s*[].])""")
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if pattern.match(line)), 0)


def _judged(key: str, value: Any, options: Mapping[str, argparse.Action]) -> Any:
    option = options.get(key)
    if option is None:
        raise _Wrong(_unknown(key, value, options))
    try:
        return _value(option, value)
    except (_Wrong, argparse.ArgumentTypeError, ValueError) as error:
        raise _Wrong(f"{key}: {error}") from None


def _unknown(key: str, value: Any, options: Mapping[str, argparse.Action]) -> str:
    if isinstance(value, dict) and key not in options:
        return f"[{key}]: there are no tables here; all keys stand by themselves"
    near = difflib.get_close_matches(key.replace("_", "-"), options, 1)
    hint = f"did you mean {near[0]}?" if near else "`livedma serve --help` lists them"
    return f"{key}: there is no such option; {hint}"


def _value(option: argparse.Action, value: Any) -> Any:
    if option.nargs == 0:
        if not isinstance(value, bool):
            raise _expected("true or false", value)
        return value
    if isinstance(option.default, list):
        if not isinstance(value, list):
            raise _expected(f"a list, such as [{_quoted(value)}]", value)
        return [_single(option, one) for one in value]
    if isinstance(value, bool) and option.nargs == "?" and option.option_strings:
        return option.const if value else option.default
    return _single(option, value)


def _single(option: argparse.Action, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _expected("a string or a number", value)
    text = str(value)
    if option.choices is not None and text not in option.choices:
        raise _Wrong(f"{text!r} is none of {', '.join(option.choices)}")
    return option.type(text) if callable(option.type) else text


def _expected(wanted: str, value: Any) -> _Wrong:
    kind = next((word for known, word in _KINDS.items() if type(value) is known), "a time")
    return _Wrong(f"this is {kind}, and it has to be {wanted}")


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
