# SPDX-License-Identifier: BSD-2-Clause
"""What the client and the server both have to know stands once, in `livedma.nfs.numbers`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "livedma" / "nfs"


def constants(text: str) -> set[tuple[str, str]]:
    """The names that a module gives to numbers and bytes, without the mark of private ones."""
    ret = set()
    for one in ast.parse(text).body:
        if not isinstance(one, ast.Assign):
            continue
        try:
            value = eval(compile(ast.Expression(one.value), "", "eval"), {"__builtins__": {}})
        except Exception:
            continue  # it takes more than what is written there
        for target in one.targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value if isinstance(target, ast.Tuple) else [value]
            for name, part in zip(names, values, strict=True):
                if isinstance(name, ast.Name) and isinstance(part, (int, bytes)):
                    ret.add((name.id.lstrip("_"), repr(part)))
    return ret


def in_folder(name: str) -> set[tuple[str, str]]:
    return set().union(*(constants(path.read_text()) for path in (ROOT / name).rglob("*.py")))


def test_constants_are_found() -> None:
    assert constants("_A, B = 1, b'2'\nC = 1 << 3\nD = len([])\nE: int = 3\n__all__ = ['C']") == {
        ("A", "1"),
        ("B", "b'2'"),
        ("C", "8"),
    }
    assert len(in_folder("client")) > 20 and len(in_folder("server")) > 50


def test_no_number_stands_in_client_and_server() -> None:
    assert not in_folder("client") & in_folder("server")
