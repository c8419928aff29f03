# SPDX-License-Identifier: BSD-2-Clause
"""The documentation is true: links lead somewhere, commands are ours, and what can be run is."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from documents import (
    DOCS,
    PRIVILEGED,
    README,
    ROOT,
    UNRUNNABLE,
    Block,
    Page,
    expected,
    pages,
    printed,
    shape,
    steps,
    typed_commands,
    without_comment,
)
from livedma.cli import parser as command_line
from livedma.lab.guest import Lab
from needs import needs
from terminals import played

PAGES = pages()
BY_PATH = {page.path: page for page in PAGES}
REFERENCE = DOCS / "reference.md"  # made from the parser, in the parser's own notation
RUN_BY_THEMSELVES = (DOCS / "tutorial.md",)  # tests/test_tutorial.py
#: Commands that only root may give, wherever they stand.
NEEDS_PRIVILEGE = re.compile(
    r"\b(sudo|mount|umount|modprobe|systemctl|rdma link add|livedma (lab|guard|capture [a-z])|"
    r"(mkdir|install|rm)\b.* /(srv|etc|usr|var|mnt))\b"
)


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def consoles(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.kind == "console"]


def played_blocks(page: Page) -> list[Block]:
    """Consoles and programs; those that are files are run by a console."""
    found = [block for block in page.blocks if block.kind in ("console", "python")]
    return [block for block in found if block.not_run is None and block.option("file") is None]


PLAYED = [page for page in PAGES if page.path not in RUN_BY_THEMSELVES and played_blocks(page)]


def has_guests(page: Page) -> bool:
    is_up = any(line == "livedma lab up" for _, line in typed_commands(page))
    return is_up or any("Lab(" in block.text for block in played_blocks(page))


def run(page: Page, home: Path, user: str | None = None) -> None:
    """Its consoles, on a machine of its own. user: types them, if it is not root."""
    for tool in ("curl", "promtool"):
        if any(line.startswith(f"{tool} ") for _, line in typed_commands(page)):
            needs(shutil.which(tool), f"{tool} is not installed")
    assert played(page, home, user)


def is_for(page: Page, user: str | None) -> bool:
    """Something of it is typed by that user."""
    blocks = played_blocks(page)
    if user is None:
        return any(block.option("user") is None for block in blocks)
    return any(not block.has(PRIVILEGED) for block in blocks)


class TestLinks:
    @pytest.mark.parametrize("page", PAGES, ids=name)
    def test_lead_somewhere(self, page: Page) -> None:
        for link in page.links:
            if re.match(r"https?://|mailto:", link):
                continue
            file, _, anchor = link.partition("#")
            path = (page.path.parent / file).resolve() if file else page.path
            assert path.exists(), f"{link}: there is no such file"
            assert path.is_relative_to(ROOT), f"{link}: is not of this repository"
            if anchor and path.suffix == ".md":
                assert anchor in BY_PATH[path].anchors, f"{link}: there is no such heading"

    def test_reach_every_page_from_the_readme(self) -> None:
        seen, todo = set(), [README]
        while todo:
            path = todo.pop()
            if path in seen or path not in BY_PATH:
                continue
            seen.add(path)
            page = BY_PATH[path]
            todo += [(path.parent / link.partition("#")[0]).resolve() for link in page.links]
        assert {name(BY_PATH[path]) for path in BY_PATH.keys() - seen} == set()

    def test_every_picture_is_shown(self) -> None:
        shown = {(page.path.parent / link).resolve() for page in PAGES for link in page.links}
        assert {path for path in (DOCS / "images").glob("*") if path not in shown} == set()


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


def all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in subcommands(parser).values():
        yield from all_parsers(below)


def simple_commands(line: str) -> Iterator[list[str]]:
    """The words of each, where bash would run several; without what goes elsewhere."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if set(word) <= set(";|&()"):
            yield words
            words = []
        else:
            words.append(word)


def ours(words: list[str]) -> list[str] | None:
    """Of `livedma`, behind what runs it elsewhere; None: it is not ours."""
    while words[:1] == ["sudo"] or words[:3] == ["livedma", "lab", "host"]:
        words = words[1 if words[0] == "sudo" else 3 :]
    if words[:1] != ["livedma"]:
        return None
    return words[1 : words.index(">") if ">" in words else None]


TYPED = [
    (where, line)
    for page in PAGES
    if page.path != REFERENCE
    for where, line in typed_commands(page)
]
OURS = [
    pytest.param(found, id=f"{where} {' '.join(found)}")
    for where, line in TYPED
    for words in simple_commands(line)
    if (found := ours(words)) is not None
]
MADE = [(where, line) for where, line in TYPED if line.startswith("make ")]


class TestCommands:
    def test_there_are_some(self) -> None:
        assert len(OURS) > 50

    @pytest.mark.parametrize("words", OURS)
    def test_are_ours(self, words: list[str]) -> None:
        parser = command_line()
        for one in all_parsers(parser):
            one.allow_abbrev = False  # pages have names that stay
        known = [word for word in words if word != "…"]
        parser.parse_args(["1" if word == "PID…" else word for word in known])

    @pytest.mark.parametrize("page", PAGES, ids=name)
    def test_in_the_text_have_options_that_exist(self, page: Page) -> None:
        for line in page.inline_commands:
            words = line.removeprefix("sudo ").split()[1:]
            parser = command_line()
            known = set(options(parser))
            while words and (below := subcommands(parser).get(words[0])) is not None:
                parser = below
                known |= options(parser)
                words = words[1:]
            if subcommands(command_line()) and parser.prog == "livedma":
                assert re.match(r"[A-Z…{-]|COMMAND", line.split()[1]), f"{line}: no such command"
            for option in re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(words)):
                assert option in known, f"{line}: {option} is none of its options"

    def test_of_make_exist(self) -> None:
        listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
        mentioned = {line.split()[1] for _, line in MADE}
        for page in PAGES:
            mentioned |= set(re.findall(r"`make ([a-z]+)[ `]", page.prose))
        assert {"demo", "test", "quick", "bench", "check"} <= mentioned
        assert {target for target in mentioned if f"make {target} " not in listed} <= {"anything"}


class TestReference:
    """That it is current is tested where it is made."""

    def test_has_every_option(self) -> None:
        text = REFERENCE.read_text()
        for parser in all_parsers(command_line()):
            command = parser.prog
            assert command in text
            for option in options(parser) - {"-h", "--help"}:
                assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), (
                    f"{command} {option}"
                )


@pytest.mark.apart
class TestConsoles:
    @pytest.mark.parametrize("page", PAGES, ids=name)
    def test_are_run_or_say_why_not(self, page: Page) -> None:
        for block in consoles(page):
            reason = block.not_run
            assert reason is None or reason in UNRUNNABLE, f"{block.where}: {reason}"
            assert list(steps(block)), f"{block.where}: nothing is typed"

    def test_of_the_readme_are_all_run_somewhere(self) -> None:
        """`make test` is what runs this."""
        left = {
            without_comment(step.command or "").strip()
            for block in consoles(Page(README))
            if block.not_run is not None
            for step in steps(block)
        }
        run_elsewhere = {line for _, line in typed_commands(Page(DOCS / "tutorial.md"))}
        assert left - run_elsewhere == {"make test"}

    @pytest.mark.parametrize("page", PAGES, ids=name)
    def test_say_what_needs_privilege(self, page: Page) -> None:
        introduction = page.prose.partition("\n## ")[0]
        for block in page.blocks:
            if block.has(PRIVILEGED):
                before = introduction + page.prose_before(block)
                assert re.search(r"\b(root|privilege)\b", before), f"{block.where}: say which users"
            elif block.kind == "console" and block.option("user") is None:
                typed = " ".join(step.command or "" for step in steps(block))
                assert not NEEDS_PRIVILEGE.search(typed), f"{block.where}: is it privileged?"

    @pytest.mark.parametrize("page", [p for p in PAGES if p.path != REFERENCE], ids=name)
    def test_are_called_so(self, page: Page) -> None:
        """What is typed cannot hide in a block without a kind, which nothing runs."""
        for block in page.blocks:
            if block.kind not in ("console", "python"):
                found = re.search(
                    r"^(\$ |sudo |livedma [a-z]|curl |mount )", block.text, re.MULTILINE
                )
                assert found is None, block.where

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "page", [p for p in PLAYED if is_for(p, None) and not has_guests(p)], ids=name
    )
    def test_print_what_is_shown_to_root(self, page: Page, tmp_path: Path) -> None:
        run(page, tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("page", [p for p in PLAYED if is_for(p, "nobody")], ids=name)
    def test_print_what_is_shown_to_a_plain_user(self, page: Page, tmp_path: Path) -> None:
        run(page, tmp_path, "nobody")

    @pytest.mark.slow
    @pytest.mark.parametrize("page", [p for p in PLAYED if has_guests(p)], ids=name)
    def test_with_guests_print_what_is_shown(self, guests: Lab, page: Page, tmp_path: Path) -> None:
        """guests: their image is there, then."""
        run(page, tmp_path)


class TestReading:
    """What the tests above stand on."""

    CONSOLE = """```console terminal server
$ livedma serve /srv/data \\
>   --web
livedma: serving /srv/data
^C
$ livedma why  # what limits it
fine
```
[here](there.md#part) ![it](it.png) `livedma why --json` [`code`](x.md)
"""

    def page(self, tmp_path: Path, text: str) -> Page:
        path = tmp_path / "page.md"
        path.write_text(text)
        return Page(path)

    def test_consoles(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("documents.ROOT", tmp_path)
        (block,) = self.page(tmp_path, self.CONSOLE).blocks
        assert (block.kind, block.option("terminal"), block.not_run) == ("console", "server", None)
        first, second = steps(block)
        assert first.command == "livedma serve /srv/data \\\n  --web" and first.interrupted
        assert first.shown == ("livedma: serving /srv/data",)
        assert (second.shown, second.interrupted, second.where) == (("fine",), False, "page.md:6")

    def test_links_and_commands(self, tmp_path: Path) -> None:
        page = self.page(tmp_path, self.CONSOLE)
        assert page.links == ["there.md#part", "it.png", "x.md"]
        assert page.inline_commands == ["livedma why --json"]

    def test_headings(self, tmp_path: Path) -> None:
        page = self.page(tmp_path, "# What `it` is\n## Twice\n## Twice\n## A kernel's, 2 of them\n")
        assert page.anchors == {"what-it-is", "twice", "twice-1", "a-kernels-2-of-them"}

    @pytest.mark.parametrize(
        ("line", "other", "alike"),
        [
            ("p99 35.4 ms, 487 MB/s", "p99 1.2 s, 9 kB/s", True),
            ("896 KiB of it", "4 MiB of it", True),
            ("mapped [####....] 4 MiB", "mapped [########] 16 MiB", True),
            ("20:55:11.023 done", "1:02 done", False),
            ("3 sessions", "3 connections", False),
            ("errors      none", "errors 3", False),
        ],
    )
    def test_shapes(self, line: str, other: str, alike: bool) -> None:
        assert (shape(line) == shape(other)) is alike

    @pytest.mark.parametrize(
        ("shown", "text", "fits"),
        [
            (("one", "…", "three"), "one\ntwo\nthree\n", True),
            (("one", "…", "three"), "one\nthree\n", True),
            (("one", "three"), "one\ntwo\nthree\n", False),
            (("took 3 ms: …",), "took 10 us: and so on\n", True),
            (("took 3 ms",), "took 10 us: and so on\n", False),
        ],
    )
    def test_what_is_expected(self, shown: tuple[str, ...], text: str, fits: bool) -> None:
        assert bool(expected(shown).fullmatch(printed(text))) is fits


class TestPython:
    """Programs are run where consoles are, by root and by a plain user."""

    @pytest.mark.parametrize("page", PAGES, ids=name)
    def test_says_why_it_is_not_run(self, page: Page) -> None:
        for block in page.blocks:
            if block.kind == "python":
                assert block.not_run in {None, *UNRUNNABLE}, block.where
                compile(block.text, block.where, "exec")  # whole: no await without a function

    def test_ten_lines_read_remote_memory(self) -> None:
        blocks = [block for block in Page(DOCS / "python.md").blocks if "cm." in block.text]
        assert len(blocks) == 2
        assert all(len(block.text.splitlines()) <= 10 for block in blocks)
