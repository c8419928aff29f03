# SPDX-License-Identifier: BSD-2-Clause
"""The image: an archive of the form that container engines read, whose root runs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clean_roots import SERVE_AND_LOAD, Machine, clean_root, room, totals
from wheels import ROOT, downloaded, the_wheel

pytestmark = [pytest.mark.slow, pytest.mark.apart]


class Layout:
    """An unpacked archive, read as the specification says; every blob has the digest it claims."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        assert json.loads((directory / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
        (self.listed,) = json.loads((directory / "index.json").read_text())["manifests"]
        manifest = json.loads(self.blob(self.listed).read_text())
        self.config: dict[str, Any] = json.loads(self.blob(manifest["config"]).read_text())
        (layer,) = manifest["layers"]
        self.layer = self.blob(layer)

    def blob(self, described: dict[str, Any]) -> Path:
        kind, _, digest = described["digest"].partition(":")
        path = self._directory / "blobs" / kind / digest
        with path.open("rb") as file:
            assert hashlib.file_digest(file, kind).hexdigest() == digest
        assert path.stat().st_size == described["size"]
        return path


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with room() as directory:
        yield directory


@pytest.fixture(scope="module")
def layout(place: Path) -> Layout:
    """Of the cached root: `make image` makes one, which takes minutes."""
    root, archive = clean_root("bookworm"), place / "image.tar"
    wheels = downloaded("3.11", "orjson", "aiohttp", "prometheus-client", "textual")
    argv = [sys.executable, ROOT / "packaging" / "image.py", "--root", root, "--wheels", wheels]
    done = subprocess.run(
        [*argv, the_wheel(), archive],
        env=os.environ | {"TMPDIR": str(place)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as tar:
        tar.extractall(place / "layout", filter="data")
    archive.unlink()
    return Layout(place / "layout")


@pytest.fixture(scope="module")
def container(layout: Layout, place: Path) -> Machine:
    """What an engine would run, without the engine."""
    (shared := place / "shared").mkdir()
    with tarfile.open(layout.layer) as tar:
        tar.extractall(place / "layer", filter="fully_trusted", numeric_owner=True)
    return Machine(place / "layer", place / "machine", shared)


def test_its_name_and_licence(layout: Layout) -> None:
    version = the_wheel_version()
    name = layout.listed["annotations"]["org.opencontainers.image.ref.name"]
    assert name == f"livedma:{version}"
    labels = layout.config["config"]["Labels"]
    assert labels["org.opencontainers.image.version"] == version
    assert "BSD-2-Clause" in labels["org.opencontainers.image.licenses"]


def the_wheel_version() -> str:
    (found,) = (ROOT / "dist").glob("livedma-*.whl")
    return found.name.split("-")[1]


def test_its_entry_point_runs(layout: Layout, container: Machine) -> None:
    config = layout.config["config"]
    done = container.run(*config["Entrypoint"], *config["Cmd"])
    assert done.returncode == 0 and "livedma COMMAND --help" in done.stdout, done.stderr


def test_it_has_the_extras_of_a_server(container: Machine) -> None:
    code = "import livedma.ui.top.app, livedma.ui.web.server, livedma.ui.metrics"
    done = container.run("/opt/livedma/bin/python", "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "user"])
def test_serve_and_load(container: Machine, is_root: bool) -> None:
    done = container.run("sh", "-c", SERVE_AND_LOAD, is_root=is_root)
    assert done.returncode == 0, (done.stdout, done.stderr)
    results = totals(done.stdout)
    assert [one["plan"]["proto"] for one in results] == ["rdma", "tcp"]
    assert all(one["operations"] > 0 and not one["errors"] for one in results)


def test_nothing_of_the_making_is_left(layout: Layout) -> None:
    with tarfile.open(layout.layer) as tar:
        names = tar.getnames()
    for emptied in ("mnt/", "var/lib/apt/lists/", "var/cache/apt/", "tmp/"):
        assert not [one for one in names if one.startswith(emptied)]
