# SPDX-License-Identifier: BSD-2-Clause
"""The wheel on systems that have Python and nothing else: Debian 12 and 13, root and user."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import shutil
from collections.abc import Iterator

import pytest
from clean_roots import SERVE_AND_LOAD, SUITES, Machine, clean_root, room, totals
from wheels import downloaded, the_wheel

from captures import BUNDLED

pytestmark = [pytest.mark.slow, pytest.mark.apart]

_RPING = """
/opt/livedma/bin/livedma rping -s -a 127.0.0.1 -C 5 & server=$!
for _ in $(seq 100); do
    /opt/livedma/bin/livedma rping -c -a 127.0.0.1 -C 5 && break
    sleep 0.1
done
wait $server
"""


@pytest.fixture(scope="module", params=SUITES)
def installed(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """livedma in a venv at /opt/livedma, by `pip install` of the wheel without any extra."""
    with _machine(request.param, "livedma", "orjson") as it:
        yield it


@contextlib.contextmanager
def _machine(suite: str, what: str, *requirements: str) -> Iterator[Machine]:
    root, wheels = clean_root(suite), downloaded(SUITES[suite], *requirements)
    with room() as directory:
        shared = directory / "shared"
        shutil.copytree(wheels, shared)
        shutil.copy(the_wheel(), shared)
        shutil.copy(BUNDLED / "rping_rc.pcap", shared)
        for path in (directory, shared):
            path.chmod(0o755)
        it = Machine(root, directory / "machine", shared)
        done = it.run("python3", "-m", "venv", "/opt/livedma")
        assert done.returncode == 0, done.stderr
        done = it.run(*_pip_install(what))
        assert done.returncode == 0, done.stderr
        yield it


def _pip_install(what: str) -> tuple[str, ...]:
    pip = ("/opt/livedma/bin/pip", "--disable-pip-version-check", "install")
    return (*pip, "--no-index", "--find-links", "/mnt/shared", what)


both = pytest.mark.parametrize("is_root", [True, False], ids=["root", "user"])


def livedma(it: Machine, *argv: str, is_root: bool) -> str:
    done = it.run("/opt/livedma/bin/livedma", *argv, is_root=is_root)
    assert done.returncode == 0, (argv, done.stdout, done.stderr)
    return done.stdout


def test_there_is_no_compiler(installed: Machine) -> None:
    assert installed.run("sh", "-c", "command -v cc gcc clang make ip").returncode != 0


@both
def test_decode(installed: Machine, is_root: bool) -> None:
    said = livedma(
        installed, "decode", "/mnt/shared/rping_rc.pcap", "--format", "json", is_root=is_root
    )
    assert all(json.loads(line)["icrc"] for line in said.splitlines())


@both
def test_rping(installed: Machine, is_root: bool) -> None:
    done = installed.run("sh", "-c", _RPING, is_root=is_root)
    assert done.returncode == 0, (done.stdout, done.stderr)


@both
def test_serve_and_load(installed: Machine, is_root: bool) -> None:
    done = installed.run("sh", "-c", SERVE_AND_LOAD, is_root=is_root)
    assert done.returncode == 0, (done.stdout, done.stderr)
    results = totals(done.stdout)
    assert [one["plan"]["proto"] for one in results] == ["rdma", "tcp"]
    assert all(one["operations"] > 0 and not one["errors"] for one in results)


@both
def test_demo(installed: Machine, is_root: bool) -> None:
    said = livedma(installed, "demo", "--policy", "static", "--seconds", "4", is_root=is_root)
    assert "on loopback" in said and "pip install 'livedma[web]'" in said


@both
def test_doctor(installed: Machine, is_root: bool) -> None:
    said = json.loads(livedma(installed, "doctor", "--json", is_root=is_root))
    assert "127.0.0.1" in said["addresses"]


def test_all_extras() -> None:
    """`pip install livedma[all]`: nothing is missing any more."""
    with _machine("bookworm", "livedma[all]", *_requirements_of_all()) as it:
        assert it.run("/opt/livedma/bin/pip", "check").returncode == 0
        assert "complete" in livedma(it, "completion", "bash", is_root=False)
        assert "ramp " in livedma(it, "experiment", is_root=False)
        parquet = ("--format", "parquet", "--write", "/home/user/packets")
        livedma(it, "decode", "/mnt/shared/rping_rc.pcap", *parquet, is_root=False)
        demo = ("demo", "--policy", "static", "--seconds", "4")
        assert "in a browser on this machine" in livedma(it, *demo, is_root=False)


def _requirements_of_all() -> list[str]:
    listed = importlib.metadata.requires("livedma") or []
    return sorted({one.partition(";")[0].strip() for one in listed} - {""})
