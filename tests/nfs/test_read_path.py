# SPDX-License-Identifier: BSD-2-Clause
"""The functions and files that one READ over RDMA passes in the server are counted, so that they do
not creep up: docs/architecture.md has the drawing of the way. `python tests/nfs/test_read_path.py`
prints them."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_NATIVE = ROOT / "native"
#: Functions and files. What others than these do depends on time, too: when they wait, and
#: acknowledge.
_MOST = {"nfs": (50, 7), "rpc": (49, 6)}
_MOST_OF_ALL = (252, 36)
_FOLDERS = ("base", "wire", "memory", "device", "capture", "port", "rpc", "nfs")


def build(folder: Path) -> Path:
    """Builds it so that functions count, without those of headers, which are parts of lines."""
    program = folder / "read_path"
    sources = [path for name in _FOLDERS for path in sorted((_NATIVE / name).glob("*.c"))]
    options = ["-O0", "-g1", "-no-pie", "-D_GNU_SOURCE", f"-I{_NATIVE}", f"-I{ROOT}", "-w"]
    counted = ["-finstrument-functions", "-finstrument-functions-exclude-file-list=.h,tests/"]
    libraries = ["-lisal", "-lpthread", "-lm"]
    driver = Path(__file__).parent / "read_path.c"
    files = map(str, ["-o", program, driver, *sources])
    command = ["cc", *options, *counted, *files, *libraries]
    subprocess.run(command, check=True)
    return program


def passed(program: Path, folder: Path) -> dict[tuple[str, str], float]:
    """How often each READ passed a function, by the function's file and name."""
    run = subprocess.run(
        [program, folder / "file"], check=True, stdout=subprocess.PIPE, text=True, timeout=120
    )
    lines = [line.split() for line in run.stdout.splitlines()]
    named = subprocess.run(
        ["addr2line", "-f", "-e", program, *(address for address, _ in lines)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.splitlines()
    places = [Path(place.rpartition(":")[0]) for place in named[1::2]]
    return {
        (str(place.relative_to(_NATIVE)), name): float(count)
        for place, name, (_, count) in zip(places, named[::2], lines, strict=True)
    }


def kept(found: dict[tuple[str, str], float]) -> dict[str, tuple[int, int]]:
    """Counts by folder the functions and files that each READ passes, or nearly each."""
    passed_by_all = {one for one, count in found.items() if count > 0.9}
    functions = Counter(file.partition("/")[0] for file, _ in passed_by_all)
    files = Counter(file.partition("/")[0] for file in {file for file, _ in passed_by_all})
    return {folder: (functions[folder], files[folder]) for folder in sorted(functions)}


@pytest.mark.slow  # it builds the server's C
def test_a_read_passes_no_more_than_it_did(tmp_path: Path) -> None:
    found = passed(build(tmp_path), tmp_path)
    assert found["rpc/call.c", "call_arrive"] == found["nfs/store.c", "ldma_nfs_store"] == 1
    by_folder = kept(found)
    every = tuple(map(sum, zip(*by_folder.values(), strict=True)))
    for most, (functions, files) in [
        (_MOST_OF_ALL, every),
        *((most, by_folder[folder]) for folder, most in _MOST.items()),
    ]:
        assert (functions <= most[0], files <= most[1]) == (True, True), by_folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as _name:
        _found = passed(build(Path(_name)), Path(_name))
    for (_file, _function), _count in sorted(_found.items()):
        print(f"{_count:8.2f} {_file:28} {_function}")
    print(f"(functions, files) of each folder: {kept(_found)}")
