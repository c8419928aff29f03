# SPDX-License-Identifier: BSD-2-Clause
"""Every source file says under which licence it is, and the licences are here."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from needs import needs

ROOT = Path(__file__).resolve().parents[1]
OURS = "BSD-2-Clause"
WITH_THE_KERNEL = "GPL-2.0-only OR BSD-2-Clause"
_SOURCES = (".py", ".pyx", ".pyi", ".pxd", ".c", ".h", ".def", ".js", ".css", ".html", ".mk", ".sh")
_NAMES = ("meson.build", "meson.options", "Makefile")
_LINES = 3  # within which the line is: it comes first, or behind a shebang
_TAG = re.compile(r"SPDX-License-Identifier: ([\w.() -]+?)(?: \*/| -->|$)")


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    needs(done.returncode == 0, "this is no checkout: git does not know which files are sources")
    return [path for name in done.stdout.splitlines() if (path := ROOT / name).is_file()]


def is_source(path: Path) -> bool:
    if path.suffix in _SOURCES or path.name in _NAMES:
        return True
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def licence(path: Path) -> str | None:
    for line in path.read_text().splitlines()[:_LINES]:
        if found := _TAG.search(line):
            return found[1]
    return None


def included(path: Path) -> set[Path]:
    """The file, and those of the project's headers that it is compiled of."""
    seen, todo = {path}, [path]
    while todo:
        text = todo.pop().read_text()
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE):
            places = (ROOT / name, ROOT / "native" / name)
            found = next((place.resolve() for place in places if place.is_file()), None)
            if found is not None and found not in seen:
                seen.add(found)
                todo.append(found)
    return seen


PROGRAMS = sorted(ROOT.glob("bpf/*.bpf.c"))
IN_PROGRAMS = set[Path]().union(*(included(one) for one in PROGRAMS))


def test_each_source_names_its_licence() -> None:
    wrong = {
        str(path.relative_to(ROOT)): licence(path)
        for path in tracked()
        if is_source(path) and licence(path) != (WITH_THE_KERNEL if path in IN_PROGRAMS else OURS)
    }
    assert not wrong


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda one: one.name)
def test_the_kernel_is_told_the_same(path: Path) -> None:
    """Its own words for it: include/linux/license.h."""
    assert 'SEC("license") = "Dual BSD/GPL";' in path.read_text()


def test_the_licences_are_here() -> None:
    assert "BSD 2-Clause" in (ROOT / "LICENSE").read_text()
    gpl = (ROOT / "LICENSES" / "GPL-2.0-only.txt").read_text()
    assert "GNU GENERAL PUBLIC LICENSE" in gpl and "Version 2, June 1991" in gpl
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == f"{OURS} AND ({WITH_THE_KERNEL})"
    assert project["license-files"] == ["LICENSE", "LICENSES/*"]
