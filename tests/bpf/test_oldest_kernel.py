# SPDX-License-Identifier: BSD-2-Clause
"""The BPF programs on the oldest kernel that they are for: that of Debian 12, Linux 6.1."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.bpf import oldest_kernel

from needs import needs

OBJECTS = Path(__file__).parents[2] / "build" / "package" / "bpf"
PROGRAMS = ("capture", "guard", "memory", "monitor", "steer")
#: They attach to functions of modules, which this guest has none of: test_inside_nfsd.py.
OF_MODULES = ("nfsd",)


@pytest.mark.slow
def test_its_verifier_accepts_every_program(tmp_path: Path) -> None:
    for tool in ("qemu-system-x86_64", "apt-get"):
        needs(shutil.which(tool), f"{tool} is missing")
    objects = sorted(OBJECTS.glob("*.bpf.o"))
    names = [path.name.removesuffix(".bpf.o") for path in objects]
    assert names == sorted(PROGRAMS + OF_MODULES)
    own = [path for path, name in zip(objects, names, strict=True) if name in PROGRAMS]
    said = oldest_kernel.load(own, tmp_path)
    assert said == dict.fromkeys(PROGRAMS, "loaded")
