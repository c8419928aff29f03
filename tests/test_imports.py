# SPDX-License-Identifier: BSD-2-Clause
"""Imports go one way: the order of the parts, by a walk over their sources.

errors <- _native <- wire, memory <- rdma <- rpc <- nfs <- control <- ui <- cli; capture and monitor
stand on wire and _native, and like rdma on bpffs and privilege; doctor looks at what all of them
need; lab may use everything, and nothing uses lab but cli and the tests.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs import graphs

SOURCES = Path(__file__).resolve().parents[1] / "src" / "livedma"

_SYSTEM = {"errors", "_native", "bpffs", "opening", "privilege", "sizes", "version"}
_WIRE = _SYSTEM | {"wire"}
_RDMA = _WIRE | {"memory", "rdma"}
_CONTROL = _RDMA | {"rpc", "nfs", "control", "monitor", "capture"}
_EVERYTHING = _CONTROL | {"extras", "doctor", "tools", "ui", "lab", "cli"}
_OFFERED = {"errors", "memory", "nfs", "rdma", "version", "wire"}
MAY_USE = {
    "": set(),  # livedma/__init__.py when it is imported; its names come later, from _OFFERED
    "__main__": {"cli"},
    "version": set(),
    "errors": set(),
    "opening": set(),
    "sizes": set(),
    "extras": set(),
    "privilege": set(),
    "_native": {"errors"},
    "bpffs": {"errors", "_native"},
    "wire": {"errors", "_native"},
    "memory": {"errors", "_native", "privilege", "sizes"},
    "capture": _WIRE,
    "monitor": _WIRE,
    "rdma": _WIRE | {"memory"},
    "rpc": _RDMA,
    "tools": _RDMA,
    "nfs": _RDMA | {"rpc"},
    "control": _CONTROL,
    "doctor": _CONTROL,
    "ui": _CONTROL,
    "cli": _EVERYTHING,
    "lab": _EVERYTHING - {"cli"},
}


def part_of(module: str) -> str:
    """'wire' for livedma.wire.cm; '' for livedma itself."""
    return module.split(".")[1] if "." in module else ""


def offered(path: Path) -> set[str]:
    """The parts whose modules livedma/__init__.py names for type checkers, or imports when one of
    its names is asked for.
    """
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in ast.walk(node) if is_for_types else ():
            if isinstance(one, ast.ImportFrom):
                found.add(part_of(one.module or ""))
    return found


def violations(sources: Path) -> list[str]:
    found = []
    for module, path in graphs.modules(sources):
        part = part_of(module)
        if part not in MAY_USE:
            found.append(f"{module}: {part} has no place in the order yet")
            continue
        for other in graphs.imported(path, module, sources):
            used = part_of(other)
            if module == "livedma" and used in _OFFERED and used in offered(path):
                continue
            if other.split(".")[0] != "livedma" or used in ("", part):
                continue
            if used in MAY_USE and used not in MAY_USE[part]:
                found.append(f"{module} must not use {other}")
    return found


def test_imports_go_one_way() -> None:
    assert not violations(SOURCES)


def test_the_package_alone_imports_nothing() -> None:
    code = (
        "import sys; before = {*sys.modules}; import livedma; print({*sys.modules} - before); "
        "livedma.LivedmaError; found = [one for one in sys.modules if one[:8] == 'livedma.']; "
        "print(found)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["{'livedma'}", "['livedma.errors']"]


def test_the_names_of_the_package_are_there() -> None:
    import livedma
    from livedma import errors, memory, nfs, rdma, version, wire

    assert livedma.__version__ == version.version()
    assert (livedma.Client, livedma.Device) == (nfs.Client, rdma.Device)
    assert (livedma.Window, livedma.Pool) == (memory.Window, memory.Pool)
    assert (livedma.decode, livedma.LivedmaError) == (wire.decode, errors.LivedmaError)
    assert {*livedma.__all__} <= {*dir(livedma)}
    assert all(getattr(livedma, name) is not None for name in livedma.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = livedma.Nothing  # type: ignore[attr-defined]


def test_the_order_has_no_cycle() -> None:
    def reaches(part: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
        for used in MAY_USE[part] - {part, *seen}:
            yield used
            yield from reaches(used, (*seen, used))

    for part in MAY_USE:
        assert part not in set(reaches(part)), part


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/x.py", "from livedma.capture import files"),
        ("wire/x.py", "def f():\n    import livedma.cli.decode"),
        ("wire/x.py", "from livedma import memory"),
        ("wire/x.py", "from ..capture.files import read"),
        ("wire/__init__.py", "from ..rdma import Device"),
        ("errors.py", "import livedma._native.wire"),
        ("capture/x.py", "if TYPE_CHECKING:\n    from livedma.rdma import Device"),
        ("control/x.py", "import_module('livedma.lab.hosts')"),
        ("_native/x.pyx", "from livedma.wire.opcodes cimport thing"),
        ("lab/x.py", "from livedma.cli import main"),
        ("rpc/x.py", "from livedma.capture import files"),
        ("rdma/x.py", "from livedma.rpc import xdr"),
        ("_native/x.pyi", "from livedma.wire import Opcode"),
        ("misc/x.py", ""),
        ("__init__.py", "from livedma.wire import decode"),
        ("__init__.py", "if TYPE_CHECKING:\n    from livedma.cli import main"),
    ],
)
def test_the_walk_sees(path: str, text: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(text)
    assert len(violations(tmp_path)) == 1


def test_the_walk_sees_no_ghosts(tmp_path: Path) -> None:
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "x.py").write_text(
        "import json\nfrom livedma.wire import cm\nfrom . import nfs\nfrom .rpc import decode\n"
        "from livedma import errors\nfrom livedma._native.wire import Batch\nimport livedma\n"
    )
    assert violations(tmp_path) == []
