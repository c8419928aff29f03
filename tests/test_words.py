# SPDX-License-Identifier: BSD-2-Clause
"""Words that readers meet: the stubs say what each public name does, and actors have names."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUBS = sorted((ROOT / "src/livedma/_native").glob("*.pyi"))
#: They hide the actor, or say how a thing feels instead of what it is.
PUZZLES = r"\b(who(ever)?|Wish(es)?|Means|heirs|oust(ed|s)?|no_more_mine|Company|next_over)\b"
# Its first word is a verb, whose subject is the thing: Returns, Counts, Holds, Is.
_SENTENCE = re.compile(r"(?!Its |This |Bytes )[A-Z][a-z]*s\b.*[.:]", re.DOTALL)


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, docstring) of functions, classes, methods and properties; setters share a getter's."""
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        if any(isinstance(one, ast.Attribute) for one in node.decorator_list):
            continue
        yield prefix + node.name, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            yield from public(node.body, f"{prefix}{node.name}.")


@pytest.mark.parametrize("path", STUBS, ids=lambda path: path.stem)
def test_each_public_name_has_a_sentence(path: Path) -> None:
    found = dict(public(ast.parse(path.read_text()).body))
    wrong = {name: said for name, said in found.items() if not _SENTENCE.match(said)}
    assert not wrong


def test_the_rule_knows_a_sentence() -> None:
    for said in ("Returns it.", "Is the key by which peers use it.", "Has the figures: a, b.\n"):
        assert _SENTENCE.match(said)
    for said in ("", "Whether it was shut.", "Its bytes.", "The key.", "Returns it", "How many."):
        assert not _SENTENCE.match(said)


def test_no_word_puzzles_the_reader() -> None:
    places = ["src", "native", "bpf", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    found = subprocess.run(
        ["git", "grep", "-nP", PUZZLES, "--", *places, ":!docs/reference.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (found.stdout, found.returncode) == ("", 1), found.stderr
