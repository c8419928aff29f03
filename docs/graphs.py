# SPDX-License-Identifier: BSD-2-Clause
"""Draws which folders include and import which, from the sources, into docs/architecture.md.

    python docs/graphs.py [FILE]

Each drawing is a list in which a folder stands below all that it uses, and names only those of
them that no other of its lines implies. A cycle has no such list: `layers` raises ValueError.
"""

from __future__ import annotations

import ast
import graphlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
_INCLUDE = re.compile(r'^\s*(?:#\s*include|cdef extern from)\s+"([^"<]+)"', re.MULTILINE)
_CIMPORT = re.compile(r"^\s*(?:from\s+(livedma[\w.]*)\s+c?import|c?import\s+(livedma[\w.]*))", re.M)
#: Packages that are drawn by their sub-packages; all others are one node.
_OPENED = ("nfs", "control")
_BINDINGS = (".pyx", ".pxd", ".c", ".h")
_PYTHON = (".py", ".pyi", ".pyx", ".pxd")

Graph = Mapping[str, set[str]]


def includes(root: Path = ROOT) -> dict[str, set[str]]:
    """By folder of native/, bpf/ and the bindings: the folders whose headers it includes."""
    found: dict[str, set[str]] = {}
    for path in sorted([*root.glob("native/*/*.[ch]"), *root.glob("bpf/*.[ch]")]):
        folder = path.parent.name
        found.setdefault(folder, set()).update(_included(path) - {folder})
    bindings = root / "src" / "livedma" / "_native"
    found["_native"] = set().union(
        *(_included(path) for path in bindings.iterdir() if path.suffix in _BINDINGS)
    )
    return found


def _included(path: Path) -> set[str]:
    folders = {name.partition("/")[0] for name in _INCLUDE.findall(path.read_text()) if "/" in name}
    return {one for one in folders if one == "bpf" or (ROOT / "native" / one).is_dir()}


def imports(sources: Path = ROOT / "src" / "livedma") -> dict[str, set[str]]:
    """By package, those of nfs and control by sub-package: the packages that it imports."""
    found: dict[str, set[str]] = {}
    for module, path in modules(sources):
        node = _node(module)
        used = {_node(other) for other in imported(path, module, sources)}
        found.setdefault(node, set()).update(used - {node, ""})
    del found[""]
    return found


def modules(sources: Path) -> Iterator[tuple[str, Path]]:
    """The name of each module below livedma, and where it is."""
    for path in sorted(sources.rglob("*.py*")):
        if path.suffix in _PYTHON:
            parts = path.relative_to(sources).with_suffix("").parts
            yield ".".join(["livedma", *(part for part in parts if part != "__init__")]), path


def _node(module: str) -> str:
    """'wire' for livedma.wire.cm, 'control.act' for livedma.control.act.case."""
    names = module.split(".")[1:]
    return ".".join(names[: 2 if names and names[0] in _OPENED else 1])


def imported(path: Path, module: str, sources: Path) -> Iterator[str]:
    """The modules of livedma that a source file imports, wherever in it."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        yield from (one or two for one, two in _CIMPORT.findall(text))
        return
    package = module if path.name.startswith("__init__.") else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            names = [_module(base, alias.name, sources) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "livedma")


def _module(base: str, name: str, sources: Path) -> str:
    """What `from base import name` imports: base, or a module in it."""
    place = sources.joinpath(*base.split(".")[1:], name)
    is_module = (
        base == "livedma"
        or place.is_dir()
        or any(place.with_suffix(one).exists() for one in _PYTHON)
    )
    return f"{base}.{name}" if is_module else base


def layers(graph: Graph) -> list[str]:
    """The drawing: a line for each node, below those that it uses. Raises ValueError on a cycle."""
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        raise ValueError(f"a cycle: {' -> '.join(reversed(error.args[1]))}") from None
    depth: dict[str, int] = {}
    reached: dict[str, set[str]] = {}
    for node in order:
        used = graph.get(node, set())
        depth[node] = 1 + max((depth[one] for one in used), default=-1)
        reached[node] = used.union(*(reached[one] for one in used))
    width = max(map(len, order))
    lines = []
    for node in sorted(order, key=lambda one: (depth[one], one)):
        used = graph.get(node, set())
        direct = sorted(used.difference(*(reached[one] for one in used)))
        lines.append(f"{node:{width}} ─▶ {', '.join(direct)}" if direct else node)
    return lines


def drawn(text: str) -> str:
    """The page with both drawings as they are now."""
    for name, graph in (("includes", includes()), ("imports", imports())):
        block = "\n".join(["```", *layers(graph), "```", ""])
        pattern = rf"(<!-- {name}: [^\n]* -->\n).*?(?=<!-- end -->)"
        text, count = re.subn(pattern, lambda m, b=block: m[1] + b, text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has no place for {name}")
    return text


if __name__ == "__main__":
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.write_text(drawn(page.read_text()))
