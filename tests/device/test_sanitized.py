# SPDX-License-Identifier: BSD-2-Clause
"""The fuzzers' corpus and the C tests, under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from needs import needs

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-fuzz"

pytestmark = pytest.mark.slow  # builds all of it with sanitizers, if nobody has


@pytest.fixture(scope="module")
def build() -> Path:
    """The sanitized build, as `make sanitize` makes it."""
    needs(shutil.which("clang"), "clang, which brings the sanitizers, is not installed")
    subprocess.run(
        ["make", "-s", "build-fuzz/build.ninja"], cwd=ROOT, check=True, capture_output=True
    )
    done = subprocess.run(["ninja", "-C", BUILD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return BUILD


def run(program: Path, *args: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("SAN_OPTIONS")}
    return subprocess.run(
        [program, *args], capture_output=True, text=True, check=False, env=environment
    )


@pytest.mark.parametrize("target", ["packet", "capfile", "device", "compound"])
def test_replay_corpus(build: Path, target: str) -> None:
    corpus = ROOT / "fuzz" / "corpus" / target
    done = run(build / "fuzz" / f"replay_{target}", corpus)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(list(corpus.iterdir()))} inputs replayed\n"


@pytest.mark.parametrize(
    "name", ["capture_capfile", "wire_icrc", "wire_icrc_id", "memory_pool", "memory_pool_threads"]
)
def test_without_devices(build: Path, name: str) -> None:
    done = run(build / "tests" / f"test_{name}")
    assert done.returncode == 0, done.stderr
