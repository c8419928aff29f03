# SPDX-License-Identifier: BSD-2-Clause
"""Folders stand on those below them; docs/architecture.md draws them as they are; one C name means
one thing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import graphs

ROOT = graphs.ROOT
HEADERS = ROOT / "native"
_QUOTED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_TAG = re.compile(r"^(struct|union|enum)\s*(\w*)\s*\{(.*?)\}", re.M | re.S)
_ENUMERATOR = re.compile(r"(?:^|,)\s*(\w+)(?=\s*[=,\n]|\s*$)")
_FUNCTION = re.compile(r"^(static\s+)?(?:[\w*]+[\s*]+)+(\w+)\([^;{]*\)\s*\{", re.M)
#: Made by the build, beside the object that it embeds.
_GENERATED = re.compile(r"\w+\.skel\.h")
#: The tables expand these words, and undefine them again.
_WORDS_OF_TABLES = {"HEADER", "OPERATION", "OPCODE", "COLUMN", "COUNTER", "FAULT", "X"}


def sources() -> list[Path]:
    return sorted([*ROOT.glob("native/*/*.[ch]"), *ROOT.glob("bpf/*.[ch]")])


def test_the_page_shows_folders_as_they_are() -> None:
    """`make docs` draws them anew; a cycle cannot be drawn."""
    page = graphs.PAGE.read_text()
    assert graphs.drawn(page) == page


def test_a_cycle_is_found() -> None:
    with pytest.raises(ValueError, match=r"a cycle: (a -> b -> a|b -> a -> b)"):
        graphs.layers({"a": {"b"}, "b": {"a"}, "c": {"a"}})


def test_only_what_is_not_implied_is_drawn() -> None:
    drawing = graphs.layers({"a": set(), "b": {"a"}, "c": {"a", "b"}})
    assert drawing == ["a", "b ─▶ a", "c ─▶ b"]


def test_includes_carry_their_path() -> None:
    wrong = []
    tested = [*sources(), *ROOT.glob("tests/*/*.[ch]")]
    for path in tested:
        for name in _QUOTED.findall(path.read_text()):
            places = (ROOT / name, ROOT / "native" / name)
            if not _GENERATED.fullmatch(name) and not (
                "/" in name and any(map(Path.is_file, places))
            ):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong


def without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", " ", text)


def declared(path: Path) -> Iterator[tuple[str, str]]:
    """Names that other files may see, each with its kind: of a header all, of a source its
    functions that are not static."""
    text = without_comments(path.read_text())
    is_header = path.suffix == ".h"
    for kind, name, body in _TAG.findall(text) if is_header else ():
        if name:
            yield name, kind
        if kind == "enum":
            yield from ((one, "enumerator") for one in _ENUMERATOR.findall(body))
    for name in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.M) if is_header else ():
        if name not in _WORDS_OF_TABLES:
            yield name, "macro"
    for static, name in _FUNCTION.findall(text):
        if not static or is_header:
            yield name, "function"


def test_one_name_means_one_thing() -> None:
    """As C has it: tags are one space of names, all else another. What is private to a source may
    be called as it is elsewhere."""
    places = defaultdict(set)
    for path in sources():
        for name, kind in declared(path):
            space = "tag" if kind in ("struct", "union", "enum") else "other"
            places[space, name].add(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def test_no_code_asks_which_thread_it_runs_in() -> None:
    """What a thread does together with other work is passed on as a batch (rpc/call.h)."""
    asks = re.compile(r"\b(pthread_self|pthread_equal|gettid|__thread|_?[Tt]hread_local)\b")
    assert not [
        str(path.relative_to(ROOT))
        for folder in ("rpc", "nfs", "port")
        for path in sorted((HEADERS / folder).glob("*.[ch]"))
        if asks.search(without_comments(path.read_text()))
    ]


@pytest.mark.parametrize(
    "text",
    [
        "struct ldma_x {\n\tint a;\n};\n",
        "enum ldma_y { A, ldma_z };\n",
        "#define LDMA_Q 1\n",
        "int ldma_f(int a)\n{\n}\n",
        "static inline struct a *ldma_f(int a,\n\t\tint b)\n{\n}\n",
    ],
)
def test_names_are_found(text: str, tmp_path: Path) -> None:
    (path := tmp_path / "x.h").write_text(f"/* {text} */\n{text}")
    assert len(list(declared(path))) >= 1
