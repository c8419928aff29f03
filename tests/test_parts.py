# SPDX-License-Identifier: BSD-2-Clause
"""The parts in which all tests run: each is heard, none is hidden by another, and all end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from parts import WHOLE, named

pytestmark = pytest.mark.apart

PARTS = Path(__file__).with_name("parts.py")
MARKS = {"guests": "@pytest.mark.guest", "host": "", "alone": "@pytest.mark.alone"}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  guest\n  apart\n  alone\n")
    return tmp_path


def write(there: Path, **bodies: str) -> None:
    """A test for each part, which does this."""
    for part, body in bodies.items():
        text = f"import pathlib, time, pytest\n{MARKS[part]}\ndef test_{part}():\n    {body}\n"
        (there / "tests" / f"test_{part}.py").write_text(text)


def start(there: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PARTS, *options],
        cwd=there,
        env={**os.environ, "PYTEST_ADDOPTS": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(there: Path, *options: str, **environment: str) -> tuple[int, list[str]]:
    with start(there, *options, **environment) as process:
        said, _ = process.communicate(timeout=120)
    return process.returncode, said.splitlines()


def test_every_test_is_in_one_part() -> None:
    parts = [which for phase in WHOLE for _, which in phase.values()]
    for values in product((True, False), repeat=3):
        marks = dict(zip(("guest", "apart", "alone"), values, strict=True))
        assert sum(eval(which, {}, marks) for which in parts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("failing", MARKS)
def test_whatever_fails_fails_the_whole(there: Path, failing: str) -> None:
    write(there, **{part: f"assert {part != failing}" for part in MARKS})
    status, lines = run(there)
    assert status == 1
    assert lines[-4].startswith(f"{failing:6} | FAILED tests/test_{failing}.py")
    ends = {line.split(" | ")[0].strip(): line.split(" | ")[1].split()[0] for line in lines[-3:]}
    assert ends == {part: "FAILED" if part == failing else "passed" for part in MARKS}


@pytest.mark.slow
def test_options_reach_every_part(there: Path) -> None:
    write(there, guests="pass", host="pass", alone="pass")
    status, lines = run(there, "-k", "host", PYTEST_ADDOPTS="--junitxml=it.xml")
    assert status == 0
    assert {line.split(" | ")[1].split(" in ")[0] for line in lines[-3:]} == {"passed", "no tests"}
    assert sorted(one.name for one in there.glob("*.xml")) == [
        "it-alone.xml",
        "it-guests.xml",
        "it-host.xml",
    ]
    assert run(there, "-k", "nothing")[0] == 5


@pytest.mark.slow
def test_what_is_slow_is_not_quick(there: Path) -> None:
    (there / "pytest.ini").write_text("[pytest]\nmarkers =\n  guest\n  apart\n  alone\n  slow\n")
    write(there, host="pass", alone="pass")
    for name in ("control", "nfs", "rdma", "rpc", "ui"):
        (there / "tests" / name).mkdir()
    slow = "import pytest\n@pytest.mark.slow\ndef test_it(): assert False\n"
    (there / "tests" / "test_slow.py").write_text(slow)
    (there / "tests" / "rdma" / "test_device.py").write_text("def test_it(): pass\n")
    status, lines = run(there, "--quick", "-v")
    assert status == 0
    passed = [line.split("::")[0] for line in lines if " PASSED" in line]
    assert sorted(passed) == [
        "device | tests/rdma/test_device.py",
        "others | tests/test_alone.py",
        "others | tests/test_host.py",
    ]


def test_files_of_results_are_named_after_parts() -> None:
    assert named("-q --junit-xml=a/b.xml -x", "host") == "-q --junit-xml=a/b-host.xml -x"
    assert named("--junitxml out.xml", "alone") == "--junitxml out-alone.xml"
    assert named("--junitprefix=x", "host") == "--junitprefix=x"


@pytest.mark.slow
def test_ctrl_c_ends_all_and_each_cleans_up(there: Path) -> None:
    (there / "conftest.py").write_text(
        "import pathlib, pytest, time\n"
        "@pytest.fixture(autouse=True)\n"
        "def cleans(request):\n"
        "    name = pathlib.Path(request.node.name)\n"
        "    name.touch()\n"
        "    yield\n"
        "    time.sleep(0.5)\n"
        "    name.unlink()\n"
    )
    write(there, guests="time.sleep(600)", host="time.sleep(600)", alone="pass")
    begun = there / "test_guests", there / "test_host"
    with start(there) as process:
        while not all(one.exists() for one in begun):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert not any(one.exists() for one in begun)
    assert "guests | stopped" in said
    assert "host   | stopped" in said
    assert "alone  |" not in said
