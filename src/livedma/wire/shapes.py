# SPDX-License-Identifier: BSD-2-Clause
"""Walks over XDR data by shape (the notation is described in `livedma.wire.nfs4`).

A compiled shape is a tuple of items; an item is (kind, argument):

    FIXED n       n bytes                     ARRAY shape    counted array
    OPAQUE None   length and bytes            LIST shape     linked list
    DATA None     OPAQUE that a chunk may     UNION (cases, default or None)
                  carry instead
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from livedma.wire.xdr import Malformed, Reader

FIXED, OPAQUE, DATA, ARRAY, LIST, UNION = range(6)
Shape = tuple[tuple[int, Any], ...]

_TOKEN = re.compile(r"\s*(\d+b|\d+(?:,\d+)*\s*:|\*\s*:|\)\*|[a-z_]+|[\[\](){}|])")


class Compiler:
    """Compiles shapes. `types` are the shapes that a shape may name, in the same notation."""

    def __init__(self, types: dict[str, str]) -> None:
        self._types = types
        self._known: dict[str, Shape] = {}

    def compile(self, text: str) -> Shape:
        """Returns the shape that `text` describes. Raises `ValueError` if it describes none."""
        tokens: list[str] = []
        pos = 0
        while text[pos:].strip():
            match = _TOKEN.match(text, pos)
            if match is None:
                raise ValueError(f"shape {text!r} is wrong at {pos}")
            tokens.append(match[1])
            pos = match.end()
        tokens.reverse()
        shape = self._items(tokens)
        if tokens:
            raise ValueError(f"shape {text!r} goes on with {tokens[-1]!r}")
        return shape

    def _items(self, tokens: list[str]) -> Shape:
        items: list[tuple[int, Any]] = []
        while tokens and tokens[-1] not in ("]", ")*", "}", "|"):
            self._item(tokens, items)
        return _merged(items)

    def _item(self, tokens: list[str], items: list[tuple[int, Any]]) -> None:
        token = tokens.pop()
        if token[0].isdigit():
            items.append((FIXED, int(token[:-1])))
        elif token in _SIMPLE:
            items.append(_SIMPLE[token])
        elif token in ("[", "("):
            kind, close = (ARRAY, "]") if token == "[" else (LIST, ")*")
            items.append((kind, self._items(tokens)))
            _expect(tokens, close)
        elif token == "{":
            items.append((UNION, self._union(tokens)))
        elif token in self._types:
            if token not in self._known:
                self._known[token] = self.compile(self._types[token])
            items.extend(self._known[token])
        else:
            raise ValueError(f"no type is called {token!r}")

    def _union(self, tokens: list[str]) -> tuple[dict[int, Shape], Shape | None]:
        cases: dict[int, Shape] = {}
        default: Shape | None = None
        while True:
            label = tokens.pop().rstrip(": ")
            body = self._items(tokens)
            if label == "*":
                default = body
            else:
                cases.update((int(number), body) for number in label.split(","))
            if not tokens or tokens[-1] != "|":
                break
            tokens.pop()
        _expect(tokens, "}")
        return cases, default


_SIMPLE = {"u": (FIXED, 4), "h": (FIXED, 8), "s": (OPAQUE, None), "d": (DATA, None)}


def _expect(tokens: list[str], token: str) -> None:
    if not tokens or tokens.pop() != token:
        raise ValueError(f"a shape lacks its {token!r}")


def _merged(items: list[tuple[int, Any]]) -> Shape:
    """Merges neighbouring fixed bytes into one item: most shapes become a single check."""
    ret: list[tuple[int, Any]] = []
    for kind, argument in items:
        if kind == FIXED and ret and ret[-1][0] == FIXED:
            ret[-1] = (FIXED, ret[-1][1] + argument)
        else:
            ret.append((kind, argument))
    return tuple(ret)


def skip(reader: Reader, shape: Shape, reduced: Callable[[int, int], bool]) -> None:
    """Moves `reader` past one value of `shape`.

    For DATA, `reduced(pos, length)`, with the position behind the length word, tells whether a
    chunk carries the bytes; then none of them (and no padding) are here. Raises `Malformed`. The
    time is linear in the number of bytes: every element of an array or list takes at least a word.
    """
    for kind, argument in shape:
        if kind == FIXED:
            reader.skip(argument)
        elif kind == OPAQUE:
            reader.skip(reader.u32())
        elif kind == DATA:
            length = reader.u32()
            if not reduced(reader.pos, length):
                reader.skip(length)
        elif kind == ARRAY:
            for _ in range(reader.u32()):
                skip(reader, argument, reduced)
        elif kind == LIST:
            while reader.boolean():
                skip(reader, argument, reduced)
        else:
            cases, default = argument
            label = reader.u32()
            body = cases.get(label, default)
            if body is None:
                raise Malformed(f"no such case: {label}", reader.pos - 4)
            skip(reader, body, reduced)
