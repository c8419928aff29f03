# SPDX-License-Identifier: BSD-2-Clause
"""The captures of real traffic that are part of the repository: tests and benchmarks read them.

Small ones lie in tests/data as they are, since the documentation shows them; the others are packed
in tests/data/captures. Each is unpacked when it is asked for, into a directory of this process.
LIVEDMA_PCAPS names a directory with other captures, which are then used instead.
"""

from __future__ import annotations

import atexit
import functools
import lzma
import os
import shutil
import tempfile
from pathlib import Path

BUNDLED = Path(__file__).resolve().parent / "data"
_PACKED = BUNDLED / "captures"
_SUFFIX = ".pcap"


def _given() -> Path | None:
    directory = os.environ.get("LIVEDMA_PCAPS")
    return Path(directory) if directory else None


def names() -> list[str]:
    """The names of all captures: those of LIVEDMA_PCAPS if it is set, else the repository's."""
    if (directory := _given()) is not None:
        if not (found := sorted(path.stem for path in directory.glob(f"*{_SUFFIX}"))):
            raise FileNotFoundError(f"LIVEDMA_PCAPS={directory}: there is no capture in there")
        return found
    return own()


def own() -> list[str]:
    """The names of the repository's captures, of which tests know what happened in them."""
    packed = (path.name.removesuffix(f"{_SUFFIX}.xz") for path in _PACKED.glob(f"*{_SUFFIX}.xz"))
    return sorted({*packed, *(path.stem for path in BUNDLED.glob(f"*{_SUFFIX}"))})


def find(name: str) -> Path | None:
    """The path of a capture: in LIVEDMA_PCAPS, else of the repository. None: there is none."""
    file = f"{name}{_SUFFIX}"
    places = [BUNDLED / file] if (given := _given()) is None else [given / file, BUNDLED / file]
    for path in places:
        if path.exists():
            return path
    packed = _PACKED / f"{file}.xz"
    return _unpacked(packed) if packed.exists() else None


@functools.cache
def _unpacked(packed: Path) -> Path:
    path = _directory() / packed.stem
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    return path


@functools.cache
def _directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="livedma-captures-"))
    path.chmod(0o755)  # tests read them as other users, too
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child ends earlier, and leaves the directory alone
        shutil.rmtree(path, ignore_errors=True)
