# SPDX-License-Identifier: BSD-2-Clause
"""Puts this package into a guest: what its Python there needs to run a command."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import orjson

import livedma
from livedma.lab.guest import Guest
from needs import needs

_PLACE = "/tmp/livedma"
_GUESTS_OWN = ("libc.so", "ld-linux", "linux-vdso")


def put_package(guest: Guest, extensions: Iterable[str]) -> str:
    """Puts the package with these of its extensions, their libraries, and orjson, which it always
    needs, into the guest. Returns how the command `livedma` begins there.
    """
    theirs = guest.run("python3 -c 'import sys; print(sys.implementation.cache_tag)'", check=True)
    own = sys.implementation.cache_tag
    needs(theirs.stdout.strip() == own, f"the guest's Python is not {own}, for which this is built")
    site = Path(livedma.__path__[0])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for path in sorted(site.rglob("*.py")):
            archive.add(path, Path("livedma") / path.relative_to(site))
        archive.add(Path(orjson.__path__[0]), "orjson")
        libraries: set[Path] = set()
        for name in extensions:
            (path,) = (site / "_native").glob(f"{name}.*.so")
            archive.add(path, Path("livedma") / path.relative_to(site))
            libraries |= _libraries(path)
        for path in libraries:
            archive.add(path.resolve(), Path("lib") / path.name)
    guest.put(packed.getvalue(), f"{_PLACE}.tgz")
    guest.run(f"mkdir -p {_PLACE} && tar xzf {_PLACE}.tgz -C {_PLACE}", check=True)
    return f"LD_LIBRARY_PATH={_PLACE}/lib PYTHONPATH={_PLACE} python3 -m livedma"


def _libraries(extension: Path) -> set[Path]:
    listed = subprocess.run(["ldd", extension], capture_output=True, text=True, check=True).stdout
    found = {Path(path) for path in re.findall(r"=> (/\S+)", listed)}
    return {path for path in found if not path.name.startswith(_GUESTS_OWN)}
