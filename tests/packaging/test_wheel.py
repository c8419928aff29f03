# SPDX-License-Identifier: BSD-2-Clause
"""The wheel: one for several versions of Python, with all that it links, and its licences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import downloaded, interpreters, the_wheel

from captures import BUNDLED

OTHERS = interpreters("3.12", "3.13")
_ALL_EXTENSIONS = """
import importlib, pkgutil, livedma._native as native
names = [one.name for one in pkgutil.iter_modules(native.__path__)]
assert len(names) > 10, names
for name in names:
    importlib.import_module(f"livedma._native.{name}")
"""

pytestmark = [pytest.mark.slow, pytest.mark.apart]


@pytest.fixture(scope="module")
def wheel() -> Path:
    return the_wheel()


def test_its_name_says_where_it_runs(wheel: Path) -> None:
    """Debian 12 has glibc 2.36; what is built there may need less, and never more."""
    found = re.fullmatch(r"livedma-[\d.]+-cp311-abi3-.*manylinux_2_(\d+)_x86_64\.whl", wheel.name)
    assert found and int(found[1]) <= 36


def test_it_brings_the_libraries(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    brought = {Path(one).name.split("-")[0].split(".")[0] for one in names if ".libs/" in one}
    assert {"libisal", "libbpf", "libelf"} <= brought  # zlib every Python has
    assert not [one for one in names if "cpython-3" in one]


def test_nothing_else_of_the_system_is_linked(wheel: Path) -> None:
    argv = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "is consistent with" in said, said


def test_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        said = archive.read(name).decode()
        licences = [one for one in archive.namelist() if "/licenses/" in one]
    assert {Path(one).name for one in licences} >= {"LICENSE", "GPL-2.0-only.txt"}
    base = [
        one for one in re.findall(r"^Requires-Dist: (.*)$", said, re.MULTILINE) if ";" not in one
    ]
    assert base == ["orjson"]
    assert "License-Expression: BSD-2-Clause AND (GPL-2.0-only OR BSD-2-Clause)" in said


@pytest.mark.parametrize("version", OTHERS)
def test_it_runs_with_other_interpreters(wheel: Path, version: str, tmp_path: Path) -> None:
    """With each that this machine has; Debian's own are those of the clean roots."""
    venv = tmp_path / "venv"
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "--disable-pip-version-check"]
    found = ["--no-index", "--find-links", str(downloaded(version, "orjson"))]
    for argv in (
        [str(OTHERS[version]), "-m", "venv", "--without-pip", str(venv)],
        [*pip, "install", "-q", *found, str(wheel)],
        [str(venv / "bin" / "python"), "-c", _ALL_EXTENSIONS],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
    decode = [str(venv / "bin" / "livedma"), "decode", str(BUNDLED / "rping_rc.pcap"), "--json"]
    decoded = subprocess.run(decode, capture_output=True, text=True, timeout=120, check=True)
    packets = [json.loads(line) for line in decoded.stdout.splitlines()]
    assert packets and all(one["icrc"] for one in packets)
