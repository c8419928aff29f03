# SPDX-License-Identifier: BSD-2-Clause
"""livedma without its extras: a venv in which their packages really are not installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pty
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from captures import BUNDLED
from livedma import extras

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_BASE = ("livedma", "orjson")


class Bare:
    """An installation of livedma and of what it always needs, and of nothing else."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory, symlinks=True)
        self.python = directory / "bin" / "python"
        site = next(directory.glob("lib/python*/site-packages"))
        for name in _BASE:
            found = importlib.util.find_spec(name)
            assert found is not None and found.origin is not None
            (site / name).symlink_to(Path(found.origin).parent)
            about = Path(str(importlib.metadata.distribution(name).locate_file("")))
            for one in about.glob(f"{name}-*.dist-info"):
                (site / one.name).symlink_to(one)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-m", "livedma.cli", *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return Bare(tmp_path_factory.mktemp("bare") / "venv")


def declared() -> dict[str, list[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: dict[str, list[str]] = project["optional-dependencies"]
    return found


def names(requirements: Sequence[str]) -> set[str]:
    return {re.split(r"[<>=~\[; ]", one)[0].replace("-", "_") for one in requirements}


def test_each_extra_has_what_the_table_says() -> None:
    found = declared()
    for module, extra in extras.EXTRA_OF.items():
        if module != "rich":
            assert module in names(found[extra]), (module, extra)


def test_all_is_everything() -> None:
    found = declared()
    everything = set.union(*(names(one) for name, one in found.items() if name != "all"))
    assert names(found["all"]) == everything


def test_every_import_of_another_package_is_declared() -> None:
    known = {"livedma", "orjson", *extras.EXTRA_OF, *sys.stdlib_module_names}
    guests = ROOT / "src" / "livedma" / "lab" / "guest"  # which have packages of their own
    for path in (ROOT / "src").rglob("*.py"):
        if guests not in path.parents:
            found = re.findall(
                r"^\s*(?:import|from) ([a-z]\w*)(?:[.\w]*)(?: import .*| as .*)?$",
                path.read_text(),
                re.MULTILINE,
            )
            assert set(found) <= known, path


def test_the_base_has_none_of_them(bare: Bare) -> None:
    code = "from livedma.extras import *; print([one for one in EXTRA_OF if is_installed(one)])"
    argv = [bare.python, "-c", code]
    assert subprocess.check_output(argv, text=True, timeout=60).strip() == "[]"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("top", "127.0.0.1", "--once"), "top needs aiohttp: pip install 'livedma[web]'"),
        (("serve", "/tmp", "--web"), "serve needs aiohttp: pip install 'livedma[web]'"),
        (("completion", "bash"), "completion needs shtab: pip install 'livedma[completion]'"),
        (("experiment",), "experiment needs pyarrow: pip install 'livedma[experiment]'"),
        (("lab",), "lab needs pyroute2: pip install 'livedma[lab]'"),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_a_missing_extra_is_one_sentence(bare: Bare, argv: tuple[str, ...], sentence: str) -> None:
    done = bare.run(*argv)
    assert (done.returncode, done.stderr) == (1, f"livedma: {sentence}\n")


def test_parquet_needs_pyarrow(bare: Bare, tmp_path: Path) -> None:
    file = next(BUNDLED.glob("*.pcap*"))
    done = bare.run("decode", str(file), "--format", "parquet", "--write", str(tmp_path / "out"))
    sentence = "livedma: decode needs pyarrow: pip install 'livedma[parquet]'\n"
    assert (done.returncode, done.stderr) == (1, sentence)
    for form in ("text", "json"):
        done = bare.run("decode", str(file), "--format", form)
        assert done.returncode == 0 and done.stdout, done.stderr


def test_top_on_a_terminal_needs_textual(bare: Bare) -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [bare.python, "-m", "livedma.cli", "top"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "NO_COLOR": "1"},
            timeout=120,
        )
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 1
    assert said.strip() == "livedma: top needs textual: pip install 'livedma[top]'"


def test_what_the_base_is_for_runs(bare: Bare) -> None:
    said = json.loads(bare.run("doctor", "--json", "lo").stdout)
    assert said["addresses"]
    assert bare.run("mem", "--json").returncode == 0
    for command in ("why", "rping", "perf", "serve", "load", "capture", "guard", "man"):
        done = bare.run(command, "--help")
        assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [bare.python, "-c", "import livedma.rdma, livedma.nfs.client, livedma.memory"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_demo_runs_on_loopback_and_says_what_is_missing(bare: Bare) -> None:
    done = bare.run("demo", "--seconds", "4")
    assert done.returncode == 0, done.stderr
    assert "pip install 'livedma[web]'" in done.stdout
    if os.geteuid() == 0:
        assert "two hosts need pyroute2: pip install 'livedma[lab]'" in done.stdout
