"""Imports go one way: the order of the parts, by a walk over their sources.

errors <- _native <- wire, memory <- rdma <- rpc <- nfs <- control <- ui <- cli; capture and monitor
stand on wire and _native, and like rdma on bpffs and privilege; doctor looks at what all of them
need; lab may use everything, and nothing uses lab but cli and the tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "src" / "livedma"

_SYSTEM = {"errors", "_native", "bpffs", "privilege"}
_WIRE = _SYSTEM | {"wire"}
_RDMA = _WIRE | {"memory", "rdma"}
_CONTROL = _RDMA | {"rpc", "nfs", "control", "monitor", "capture"}
_EVERYTHING = _CONTROL | {"doctor", "tools", "ui", "lab", "cli"}
MAY_USE = {
    "": set(),  # livedma/__init__.py
    "errors": set(),
    "privilege": set(),
    "_native": {"errors"},
    "bpffs": {"errors", "_native"},
    "wire": {"errors", "_native"},
    "memory": {"errors", "_native", "privilege"},
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


def imported(path: Path, module: str) -> Iterator[str]:
    """The modules of livedma that a source file imports, wherever in it."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        pattern = r"^\s*(?:from\s+(livedma[\w.]*)\s+c?import|c?import\s+(livedma[\w.]*))"
        yield from (one or two for one, two in re.findall(pattern, text, re.MULTILINE))
        return
    package = module if path.name.startswith("__init__.") else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            # `from livedma import wire` names a part, too.
            yield from (f"{base}.{alias.name}" for alias in node.names if base == "livedma")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant))


def violations(sources: Path) -> list[str]:
    found = []
    for path in sorted(sources.rglob("*.py*")):
        if path.suffix not in (".py", ".pyi", ".pyx", ".pxd"):
            continue
        parts = path.relative_to(sources).with_suffix("").parts
        module = ".".join(["livedma", *(part for part in parts if part != "__init__")])
        part = part_of(module)
        if part not in MAY_USE:
            found.append(f"{module}: {part} has no place in the order yet")
            continue
        for other in imported(path, module):
            used = part_of(other)
            if other.split(".")[0] != "livedma" or used in ("", part):
                continue
            if used in MAY_USE and used not in MAY_USE[part]:
                found.append(f"{module} must not use {other}")
    return found


def test_imports_go_one_way() -> None:
    assert not violations(SOURCES)


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
