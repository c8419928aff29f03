# SPDX-License-Identifier: BSD-2-Clause
"""Manual pages, the reference and completion: all of what the command line knows, and current."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.cli import main, parser, reference
from livedma.cli.commands import Command, described
from livedma.cli.roff import page
from needs import needs

ROOT = Path(__file__).parents[2]
TOP = described(parser())


def all_of(command: Command) -> Iterator[Command]:
    yield command
    for one in command.commands:
        yield from all_of(one)


def parsers(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield top
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from parsers(one)


def test_the_reference_is_current() -> None:
    """`make docs` renews it."""
    assert (ROOT / "docs" / "reference.md").read_text() == reference.render()


def test_the_reference_has_every_option() -> None:
    text = (ROOT / "docs" / "reference.md").read_text()
    for command in all_of(TOP):
        for _, arguments in command.groups:
            for one in arguments:
                shown = one.invocation.replace("|", "\\|")
                assert one.names == ("-h", "--help") or f"| `{shown}` |" in text, one


def test_the_reference_has_every_answer_of_the_page() -> None:
    source = (ROOT / "src" / "livedma" / "ui" / "web" / "app.py").read_text()
    routes = re.findall(r'web\.(get|post)\("([^"{]*)', source)
    assert routes
    text = (ROOT / "docs" / "reference.md").read_text()
    assert [one for one in routes if f"{one[0].upper()} {one[1]}" not in text] == [
        ("get", "/static/")
    ]


@pytest.mark.parametrize("one", list(parsers(parser())), ids=lambda one: one.prog)
def test_every_option_says_what_it_is_unless_told(one: argparse.ArgumentParser) -> None:
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        assert action.help, f"{one.prog} {action.dest}"
        takes_value = action.nargs != 0 and action.option_strings and not action.required
        if takes_value and action.default not in (None, [], (), argparse.SUPPRESS):
            assert re.search(r"\(.+\)", action.help), f"{one.prog} {action.option_strings}"


@pytest.mark.parametrize("command", [TOP, *TOP.commands], ids=lambda one: one.name)
def test_manual_pages_are_clean(command: Command, tmp_path: Path) -> None:
    text = page(command, TOP)
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
        assert f"\n.SH {section}\n" in text
    needs(shutil.which("groff"), "groff is not installed")
    file = tmp_path / "page.1"
    file.write_text(text)
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", str(file)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    plain = re.sub(r".\x08", "", done.stdout)
    for _, arguments in command.groups:
        for one in arguments:
            for name in one.names:
                assert name in plain


def test_all_pages_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "--write", str(tmp_path / "man1")]) == 0
    found = {path.stem for path in (tmp_path / "man1").iterdir()}
    assert found == {"livedma", *(one.name.replace(" ", "-") for one in TOP.commands)}
    assert main(["man", "serve"]) == 0
    assert capsys.readouterr().out == (tmp_path / "man1" / "livedma-serve.1").read_text()
    assert main(["man", "fly"]) == 1


def completed(script: str, tmp_path: Path, line: str) -> list[str]:
    """What bash offers for a line, as its user would see it."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    run = f"""
source {tmp_path}/livedma.bash
complete -p livedma > /dev/null || exit 1
COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}
function=$(complete -p livedma | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function livedma '{words[-1]}' '{words[-2]}'
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    (tmp_path / "livedma.bash").write_text(script)
    done = subprocess.run(
        ["bash", "--norc", "-c", run], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.split())


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    (tmp_path / "file.pcap").write_text("")
    (tmp_path / "data").mkdir()
    assert completed(script, tmp_path, "livedma ser") == ["serve"]
    assert completed(script, tmp_path, "livedma serve --squash ") == ["all", "none", "root"]
    assert completed(script, tmp_path, "livedma serve --log-f") == ["--log-format"]
    assert completed(script, tmp_path, "livedma guard eth0 of") == ["off"]
    assert "file.pcap" in completed(script, tmp_path, "livedma decode f")
    assert completed(script, tmp_path, "livedma serve --state ") == ["data"]


def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fish"]) == 0
    (tmp_path / "livedma.fish").write_text(capsys.readouterr().out)
    needs(shutil.which("fish"), "fish is not installed")
    (tmp_path / "file.pcap").write_text("")
    (tmp_path / "fdata").mkdir()
    lines = (
        ("livedma ser", ["serve"]),
        ("livedma serve --squash ", ["all", "none", "root"]),
        ("livedma serve --log-f", ["--log-format"]),
        ("livedma guard eth0 of", ["off"]),
        ("livedma guard eth0 add --mal", ["--malformed"]),
        ("livedma guard eth0 --mal", []),
        ("livedma perf read-", ["read-bw", "read-lat"]),
        ("livedma decode f", ["fdata/", "file.pcap"]),
        ("livedma decode --write f", ["fdata/", "file.pcap"]),
        ("livedma serve --state f", ["fdata/"]),
        ("livedma load f", []),
        ("livedma --ver", ["--version"]),
    )
    wanted = "".join(f"echo = '{line}'; complete -C '{line}'\n" for line, _ in lines)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/livedma.fish\n{wanted}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {}
    for block in done.stdout.split("= ")[1:]:
        line, *offered = block.splitlines()
        found[line] = sorted(one.split("\t")[0] for one in offered)
    assert found == dict(lines)


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_are_told_as_well(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert all(one.name.split()[1] in said for one in TOP.commands)


def test_help_loads_little() -> None:
    """It is asked for often: nothing heavy is loaded for it."""
    code = (
        "import sys\nfrom livedma.cli import parser\nparser().format_help()\n"
        "print(*{'aiohttp', 'textual', 'pyarrow', 'prometheus_client', 'shtab', 'sqlite3', "
        "'matplotlib', 'numpy', 'pyroute2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
