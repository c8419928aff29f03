# SPDX-License-Identifier: BSD-2-Clause
"""Commands that livedma prints: fit to be pasted by root and by a plain user."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from livedma import privilege
from unprivileged import as_nobody

SOURCES = Path(__file__).resolve().parents[2] / "src" / "livedma"
# Words of commands that would take something from others, and so must not be ready to paste.
HARMFUL = ("kill ", "rm ", "chmod ", "chown ", "setcap ", "link delete", "detach", "xdp off")


def test_root_is_told_no_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privilege.os, "geteuid", lambda: 0)
    assert privilege.as_root("true") == "true"
    monkeypatch.setattr(privilege.os, "geteuid", lambda: 1000)
    assert privilege.as_root("true") == "sudo true"


def test_one_place_decides_about_sudo() -> None:
    """No other text of the package has the word in front of a command."""
    found = []
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text())
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        docs = {
            ast.get_docstring(node, clean=False)
            for node in ast.walk(tree)
            if isinstance(node, documented)
        }
        found += [
            f"{path.relative_to(SOURCES)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "sudo " in node.value
            and node.value not in docs
        ]
    assert [one.partition(":")[0] for one in found] == ["privilege.py"], found


@pytest.mark.slow
@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize("command", ["doctor", "mem"])
def test_fixes_fit_the_user_and_harm_nobody(command: str, is_root: bool) -> None:
    argv = [*([] if is_root else as_nobody()), "livedma", command, "--json"]
    said = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=60)
    found = json.loads(said.stdout)["findings" if command == "doctor" else "advice"]
    fixes = [one[key] for one in found for key in ("fix", "keep") if one.get(key)]
    for fix in fixes:
        assert not any(word in fix for word in HARMFUL), fix
        assert not (is_root and "sudo" in fix), fix
        if any(word in fix for word in ("sysctl -w", "tee ", "prlimit", "setpriv")):
            assert is_root or "sudo " in fix, fix
