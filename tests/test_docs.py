"""The documentation is true: links lead somewhere, commands are ours, and what can be run is."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from documents import (
    DOCS,
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
from terminals import furnish, machine, play

PAGES = pages()
BY_PATH = {page.path: page for page in PAGES}
REFERENCE = DOCS / "reference.md"  # made from the parser, in the parser's own notation
RUN_BY_THEMSELVES = (DOCS / "tutorial.md",)  # tests/test_tutorial.py


def name(page: Page) -> str:
    return str(page.path.relative_to(ROOT))


def consoles(page: Page) -> list[Block]:
    return [block for block in page.blocks if block.kind == "console"]


PLAYED = [
    page
    for page in PAGES
    if page.path not in RUN_BY_THEMSELVES and any(block.not_run is None for block in consoles(page))
]


def has_guests(page: Page) -> bool:
    return any(line == "livedma lab up" for _, line in typed_commands(page))


def run(page: Page, home: Path) -> None:
    """Its consoles, on a machine of its own."""
    needs(os.geteuid() == 0, "a machine of its own needs root")
    for tool in ("curl", "promtool"):
        if any(line.startswith(f"{tool} ") for _, line in typed_commands(page)):
            needs(shutil.which(tool), f"{tool} is not installed")
    furnish(home)
    with machine() as here:
        assert play(page, here, home)


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

    @pytest.mark.slow
    @pytest.mark.parametrize("page", [p for p in PLAYED if not has_guests(p)], ids=name)
    def test_print_what_is_shown(self, page: Page, tmp_path: Path) -> None:
        run(page, tmp_path)

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


@contextmanager
def running(program: str) -> Iterator[None]:
    """A server, which ends when it is no longer needed."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def printed_by(program: str) -> str:
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def programs(*words: str) -> list[str]:
    blocks = Page(DOCS / "python.md").blocks
    return [
        block.text
        for block in blocks
        if block.kind == "python" and all(word in block.text for word in words)
    ]


class TestPython:
    """docs/python.md"""

    def test_packets(self) -> None:
        (program,) = programs("wire.decode")
        assert "RC_SEND_FIRST 4524708 None\n" in printed_by(program)

    def test_memory_grows_and_shrinks(self) -> None:
        (program,) = programs("window.extend")
        printed = printed_by(program)
        assert re.fullmatch(r"a buffer at 0x1[0-9a-f]{12} of 16; 80 MiB\n", printed)

    def test_ten_lines_read_remote_memory(self) -> None:
        server, client = programs("cm.")
        assert all(len(program.splitlines()) <= 10 for program in (server, client))
        with running(server):
            for _ in range(100):
                argv = [sys.executable, "-c", client]
                asked = subprocess.run(argv, capture_output=True, text=True, timeout=60)
                if not asked.returncode:
                    break
                time.sleep(0.1)
        assert asked.stdout == "hello from afar\n", asked.stderr
