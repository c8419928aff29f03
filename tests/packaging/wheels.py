# SPDX-License-Identifier: BSD-2-Clause
"""The wheel under test, and wheels of what it depends on, for systems that reach no index."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from livedma.lab import image
from needs import needs

__all__ = ["downloaded", "interpreters", "the_wheel"]

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 540


@functools.cache
def the_wheel() -> Path:
    """Built by `make wheel`, which compiles only what has changed."""
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    done = subprocess.run(
        ["make", "wheel"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (found,) = (ROOT / "dist").glob("livedma-*.whl")
    return found


def interpreters(*versions: str) -> dict[str, Path]:
    """Finds interpreters of these versions on PATH and among pyenv's."""
    ret: dict[str, Path] = {}
    for version in versions:
        found = shutil.which(f"python{version}")
        homes = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
        candidates = [*homes, *([Path(found)] if found else [])]
        usable = [one for one in candidates if _is(one, version)]
        if usable:
            ret[version] = usable[0]
    return ret


def _is(interpreter: Path, version: str) -> bool:
    """Whether it is one; pyenv's shims are on PATH for versions that are not chosen, too."""
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, timeout=60)
    except OSError:
        return False
    return done.stdout.strip() == version


def downloaded(version: str, *requirements: str) -> Path:
    """A directory with what they need for CPython `version`, cached from one run to the next."""
    directory = image.cache_directory() / f"wheels-{version}"
    directory.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "pip", "download", "-q", "--dest", str(directory)]
    argv += ["--find-links", str(directory), "--only-binary", ":all:", "--python-version", version]
    argv += [f"--platform=manylinux_2_{one}_x86_64" for one in range(36, 16, -1)]
    offline = subprocess.run(
        [*argv, "--no-index", *requirements], capture_output=True, timeout=_LIMIT_S
    )
    if offline.returncode:
        done = subprocess.run(
            [*argv, *requirements], capture_output=True, text=True, timeout=_LIMIT_S
        )
        needs(done.returncode == 0, f"pip cannot download wheels: {done.stderr[-300:]}")
    return directory
