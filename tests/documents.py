# SPDX-License-Identifier: BSD-2-Clause
"""The documentation as data: pages, their links, their blocks, and the commands in them.

A block of the kind `console` is a terminal. Lines that begin with `$ ` are typed (`> ` goes on with
one), the others are what is printed. Behind the kind, the opening line may say

    terminal NAME       another terminal, in which the last command may go on
    user NAME           as somebody without privilege, and only so
    privileged          it needs root, and the text before it says so; else root and any other user
                        may type it
    again               it looks at something that changes: until it is as shown
    keys KEYS           the command has a screen of its own, and KEYS leave it
    not run: REASON     the test leaves it alone; REASON is one of UNRUNNABLE

A block of the kind `python` is a whole program, and the same words may stand behind its kind. What
it prints is in the block behind it, if that is `text printed`. With `file NAME` it is put into that
file instead, for a console to use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = ROOT / "docs"
INTERRUPT = "^C"
ANYTHING = "…"
PRIVILEGED = "privileged"

#: Why a command may stand in a page without being run.
UNRUNNABLE = {
    "it runs this test": "make test",
    "needs a container engine": "podman or docker, which this machine need not have",
    "needs another machine": "a client or a server that is not this one",
    "needs an RDMA NIC": "hardware",
    "needs an interface": "eth0 is the reader's; its own tests give these commands on a veth",
    "needs systemd": "a system that was booted by it",
    "needs a Prometheus server": "it runs until it is ended, and asks for data",
    "takes minutes": "and its own tests run it at a smaller scale",
}


@dataclass(frozen=True)
class Block:
    """A fenced block. line: of its first line."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def kind(self) -> str:
        return self.info.split(" ")[0]

    @property
    def not_run(self) -> str | None:
        found = re.search(r" not run: (.*)", self.info)
        return found[1] if found else None

    def option(self, name: str) -> str | None:
        found = re.search(rf" {name} (\S+)", self.info)
        return found[1] if found else None

    def has(self, word: str) -> bool:
        return word in self.info.split(" ")

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A command and what it prints; no command: what one prints that goes on. interrupted: by ^C,
    after that.
    """

    command: str | None
    shown: tuple[str, ...]
    interrupted: bool
    where: str


class Page:
    """A Markdown file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()

    @cached_property
    def blocks(self) -> list[Block]:
        found, lines = [], self.text.splitlines()
        opened: tuple[int, str] | None = None
        for number, line in enumerate(lines, 1):
            if not line.startswith("```"):
                continue
            if opened is None:
                opened = (number + 1, line[3:])
            else:
                first, info = opened
                text = "\n".join(lines[first - 1 : number - 1])
                found.append(Block(self.path, first, info, text))
                opened = None
        assert opened is None, f"{self.path}: a block is not closed"
        return found

    def printed_by(self, block: Block) -> tuple[str, ...]:
        """What a program prints, as the page shows it; nothing: the page does not say."""
        behind = self.blocks[self.blocks.index(block) + 1 :]
        if behind and behind[0].info == "text printed":
            return tuple(behind[0].text.splitlines())
        return ()

    def prose_before(self, block: Block) -> str:
        """The text of its section that stands before a block."""
        before = "\n".join(self.text.splitlines()[: block.line - 2])
        prose = re.sub(r"^```.*?^```$", "", before, flags=re.MULTILINE | re.DOTALL)
        return re.split(r"^#+ .*$", prose, flags=re.MULTILINE)[-1]

    @cached_property
    def prose(self) -> str:
        """All but the blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @cached_property
    def anchors(self) -> set[str]:
        """Of its headings, as GitHub makes them."""
        found: set[str] = set()
        for heading in re.findall(r"^#+ (.*)$", self.prose, re.MULTILINE):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
            count = 1
            unique = slug
            while unique in found:
                unique = f"{slug}-{count}"
                count += 1
            found.add(unique)
        return found

    @cached_property
    def links(self) -> list[str]:
        """Of links and images, without code."""
        prose = re.sub(r"`[^`]*`", "", self.prose)
        found = re.findall(r"\]\(([^)\s]+)\)", prose)
        return found + re.findall(r"""(?:src|href|srcset)="([^"]+)\"""", prose)

    @cached_property
    def inline_commands(self) -> list[str]:
        """`livedma …` in the text."""
        found = re.findall(r"`+((?:sudo )?livedma [^`]+)`+", self.prose)
        return [" ".join(one.split()) for one in found]


def pages() -> list[Page]:
    paths = (README, CONTRIBUTING, *sorted(DOCS.rglob("*.md")))
    return [Page(path) for path in paths]


def steps(block: Block) -> Iterator[Step]:
    """Of a console."""
    command: str | None = None
    shown: list[str] = []
    where, begun = block.where, False

    def step(interrupted: bool) -> Step:
        return Step(command, tuple(shown), interrupted, where)

    for number, line in enumerate(block.text.splitlines(), block.line):
        if line.startswith("$ "):
            if begun:
                yield step(False)
            command, shown, begun = line[2:], [], True
            where = f"{block.page.relative_to(ROOT)}:{number}"
        elif line.startswith("> ") and command is not None and not shown:
            command += "\n" + line[2:]
        elif line == INTERRUPT:
            yield step(True)
            command, shown, begun = None, [], False
        else:
            shown.append(line)
            begun = True
    if begun:
        yield step(False)


def without_comment(command: str) -> str:
    """`livedma why  # what limits it`: as bash reads it."""
    return re.sub(r"\s+#\s.*$", "", command)


def typed_commands(page: Page) -> Iterator[tuple[str, str]]:
    """Where, and every line that somebody is to type: of consoles, and of blocks without a kind."""
    for block in page.blocks:
        if block.kind == "console":
            for step in steps(block):
                if step.command is not None:
                    yield step.where, without_comment(step.command.replace("\\\n", " "))
        elif not block.info:
            for number, line in enumerate(block.text.splitlines(), block.line):
                if re.match(r"(sudo )?(livedma|make) ", line):
                    yield f"{page.path.relative_to(ROOT)}:{number}", without_comment(line)


_MASKS = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]"), ""),
    (re.compile(r"\[[#.|█▒·]{8,}\]"), "BAR"),
    (re.compile(r"[▁▂▃▄▅▆▇█ ]*[▁▂▃▄▅▆▇█]$"), " LINE"),
    (re.compile(r"\b(?:[0-9a-f]{16,}|(?=[0-9a-f]*[0-9])[0-9a-f]{8})\b"), "ID"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "ID"),
    (re.compile(r"\b\d\d:\d\d:\d\d(\.\d+)?"), "TIME"),
    (re.compile(r"[+-]?\b\d[\d,.]*(?: ?(?:[kKMGT]i?B|bytes|B|ms|us|ns|s|%)(?:/s)?\b| ?%)?"), "N"),
    (re.compile(r"\s+"), " "),
)


def shape(line: str) -> str:
    """A line without what differs each time: figures and their units, times, ids, bars."""
    for pattern, mask in _MASKS:
        line = pattern.sub(mask, line)
    return line.strip()


def expected(shown: tuple[str, ...]) -> re.Pattern[str]:
    """What fits the lines: a line that is `…` is any number of them, `…` in a line any text."""
    parts = []
    for line in shown:
        if line.strip() == ANYTHING:
            parts.append(r"(?:.*\n)*?")
        else:
            masked = (re.escape(shape(part)) for part in line.split(ANYTHING))
            parts.append(".*".join(masked) + r"\n")
    return re.compile("".join(parts))


def printed(text: str) -> str:
    """To hold against `expected`."""
    return "".join(f"{shape(line)}\n" for line in text.splitlines())
