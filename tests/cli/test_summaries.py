# SPDX-License-Identifier: BSD-2-Clause
"""`livedma --help` needs no command's module, and still says what each of them says of itself."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest

from livedma.cli import COMMANDS, main, parser
from livedma.cli.summaries import SUMMARIES

_IMPORTED = """
import sys
from livedma.cli import main
try:
    main(["--help"])
finally:
    print(*(name for name in sys.modules if name.partition(".")[0] in ("livedma", "orjson")))
"""


def registered() -> dict[str, str | None]:
    (commands,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return {one.dest: one.help for one in commands._choices_actions}


def test_the_table_is_what_commands_register() -> None:
    assert registered() == SUMMARIES
    assert tuple(SUMMARIES) == COMMANDS


def test_the_outline_is_the_help_of_all_commands() -> None:
    assert parser(is_outline=True).format_help() == parser().format_help()


def test_help_imports_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED], capture_output=True, text=True, timeout=60
    )
    imported = set(done.stdout.splitlines()[-1].split())
    assert "livedma.cli" in imported
    heavy = {
        one for one in imported if one.startswith(("livedma._native", "livedma.wire", "orjson"))
    }
    assert not heavy | imported & {f"livedma.cli.{name}" for name in COMMANDS}


def test_a_wrong_name_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["sevre"])
    assert ended.value.code == 2
    assert "sevre" in capsys.readouterr().err
