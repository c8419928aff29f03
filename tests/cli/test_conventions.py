# SPDX-License-Identifier: BSD-2-Clause
"""What people expect of any command: help, versions, words in any order, and short complaints."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from livedma.cli import COMMANDS, main, parser
from livedma.cli.arguments import Parser

TOP = parser()


def parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from parsers(one)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "livedma", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence that refuses a wrong use; the line after it says where help is."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    sentence, hint, *rest = printed.err.splitlines()
    assert (printed.out, rest) == ("", [])
    assert re.fullmatch(r"try 'livedma.* --help'", hint)
    return sentence


def test_python_m_livedma_says_its_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"livedma {re.escape(version('livedma'))}( \(commit \S+\))?\n", done.stdout
    )
    assert run("-V").stdout == done.stdout


def test_a_version_loads_little() -> None:
    code = (
        "import sys\nfrom livedma.cli import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "print(*(n for n in sys.modules if n.startswith('livedma._native') or n == 'difflib'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[1:] == [""]


def test_bare_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    said = capsys.readouterr()
    assert said.out.startswith("usage: livedma ")
    assert all(name in said.out for name in COMMANDS)
    assert said.err == ""


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["help", "decode"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("usage: livedma decode ")


@pytest.mark.parametrize("one", list(parsers(TOP)), ids=lambda one: one.prog)
def test_every_help_has_an_example(one: argparse.ArgumentParser) -> None:
    assert isinstance(one, Parser)
    if one is not TOP:
        command = " ".join(one.prog.split()[:2])
        assert re.search(rf"examples?:\n  .*{command}\b", one.epilog or "")


@pytest.mark.parametrize("one", list(parsers(TOP)), ids=lambda one: one.prog)
def test_help_fits_the_terminal(
    one: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = one.format_help().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if re.match(r" [^ ]", line)] == []
    said = " ".join(" ".join(lines).split())
    for text in (one.description or "", one.epilog or ""):  # no word is lost
        assert " ".join(text.split()) in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["serv"], "livedma: there is no command 'serv': did you mean 'serve'?"),
        (["decoed", "x"], "livedma: there is no command 'decoed': did you mean 'decode'?"),
        (["--verson"], "livedma: unknown option '--verson': did you mean '--version'?"),
        (
            ["load", "::1", "--sesions", "4"],
            "livedma load: unknown option '--sesions': did you mean '--sessions'?",
        ),
        (
            ["load", "::1", "--sesions=4"],
            "livedma load: unknown option '--sesions': did you mean '--sessions'?",
        ),
        (
            ["load", "--sesions=4"],
            "livedma load: unknown option '--sesions': did you mean '--sessions'?",
        ),
        (["load", "::1", "-Z"], "livedma load: unknown option '-Z'"),
        (["load"], "livedma load: the following arguments are required: ADDR"),
        (
            ["load", "::1", "::2"],
            "livedma load: there is no place for '::2': too many arguments",
        ),
        (
            ["load", "::1", "--size", "x"],
            "livedma load: --size: 'x' is no size: write 64, 4KiB or 1MiB",
        ),
        (
            ["serve", "/", "--policy", "extnd"],
            "livedma serve: --policy: invalid choice: 'extnd': did you mean 'extend'?",
        ),
        (
            ["guard", "lo", "ad", "drop"],
            "livedma guard: there is no action 'ad': did you mean 'add'?",
        ),
        (["perf", "read-bw", "-s", "64", "a", "b"], "livedma perf: there is no place for 'b'"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_mistakes(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, *words).startswith(sentence)


def test_a_far_word_gets_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "frobnicate")
    assert said.startswith("livedma: there is no command 'frobnicate': choose from demo, ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("perf read-bw -s 64 host", {"test": "read-bw", "size": 64, "server": "host"}),
        ("perf -s 64 read-bw host", {"test": "read-bw", "size": 64, "server": "host"}),
        ("perf -a read-bw --json host", {"test": "read-bw", "all": True, "server": "host"}),
        ("perf read-bw host -s 64", {"test": "read-bw", "size": 64, "server": "host"}),
        ("perf read-bw -s 64 -- host", {"test": "read-bw", "size": 64, "server": "host"}),
        ("perf read-bw -s 64", {"test": "read-bw", "size": 64, "server": None}),
        ("guard lo add limit --qp 1 10k/s", {"action": "limit", "rate": 10000}),
        ("guard lo --json qps add 1", {"json": True, "verb": "add"}),
        ("guard lo qps add --json 1", {"json": True, "verb": "add"}),
        ("guard lo remove --json 1", {"json": True, "number": 1}),
        ("decode --json file", {"json": True, "file": "file"}),
        ("decode --write out -- -", {"write": "out", "file": "-"}),
        ("capture --count 4 lo", {"count": 4, "iface": "lo"}),
        ("load --sessions 4 ::1 --json", {"sessions": 4, "server": "::1"}),
        ("rping -v -C 1 -a ::1 -c", {"count": 1, "address": "::1", "is_server": False}),
        ("serve --tcp 2049 /srv --log-level info", {"log_level": "info"}),
        ("top --once ::1 --json", {"once": True, "json": True}),
        ("experiment --full pool --seed 2", {"name": "pool", "full": True, "seed": 2}),
        ("lab sh a ls -l --json", {"guest": "a", "command": ["ls", "-l", "--json"]}),
        ("man --write there", {"command": None}),
        ("why --json 12", {"json": True}),
        ("mem 1 --json 2", {"pids": [1, 2], "json": True}),
        ("mem 1 2 --watch", {"pids": [1, 2], "watch": 1.0}),
        ("mem --watch 3", {"watch": 3.0}),
    ],
)
def test_options_and_words_in_any_order(words: str, expected: dict[str, object]) -> None:
    found = vars(TOP.parse_args(words.split()))
    assert {name: found[name] for name in expected} == expected
