# SPDX-License-Identifier: BSD-2-Clause
"""Fetches and unpacks what the lab takes from Debian: kernels are not installed."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from livedma.errors import LabError

__all__ = ["fetch_kernel", "output"]

_LIMIT_S = 900


def output(*argv: str | Path, cwd: Path | None = None, limit_s: float = _LIMIT_S) -> str:
    """Returns what a program prints; raises LabError with the end of it if it fails."""
    try:
        done = subprocess.run(
            [str(arg) for arg in argv],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=os.environ | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{argv[0]} took longer than {limit_s:g} s") from None
    except FileNotFoundError:
        raise LabError(f"{argv[0]} is missing: guests are built on Debian") from None
    if done.returncode:
        said = " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise LabError(f"{Path(argv[0]).name} failed with status {done.returncode}: {said}")
    return done.stdout


def fetch_kernel(like: re.Pattern[str], directory: Path) -> str:
    """Unpacks a kernel's package there; the kernel's version.

    like: its name but for "linux-image-"; of several, that whose first group is the highest
    number. If there is none, it is the kernel of the release.
    """
    package = _find(like)
    if package is None:
        output("apt-get", "-q", "update")
        package = _find(like)
    if package is None:
        raise LabError("apt knows no kernel: check /etc/apt/sources.list.d and apt-get update")
    try:
        _download(package, directory)
    except LabError:  # the lists may be older than the archive
        output("apt-get", "-q", "update")
        package = _find(like) or package
        _download(package, directory)
    output("dpkg-deb", "-x", next(directory.glob("*.deb")), directory)
    return package.removeprefix("linux-image-")


def _download(package: str, directory: Path) -> None:
    output("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package, cwd=directory)


def _find(like: re.Pattern[str]) -> str | None:
    names = output("apt-cache", "pkgnames", "linux-image-").split()
    found = [match for name in names if (match := like.fullmatch(name, len("linux-image-")))]
    if found:
        return max(found, key=lambda match: int(match[1])).string
    depends = output("apt-cache", "depends", "linux-image-amd64") if names else ""
    match = re.search(r"Depends: (linux-image-\S+)", depends)
    return match[1] if match else None
