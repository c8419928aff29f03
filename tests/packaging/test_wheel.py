# SPDX-License-Identifier: BSD-2-Clause
"""The wheel: one for several versions of Python, with all that it links, and its licences."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from wheels import the_wheel

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
