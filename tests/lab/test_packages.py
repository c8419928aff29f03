# SPDX-License-Identifier: BSD-2-Clause
"""Which kernel is fetched, from an apt that knows more or less."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from livedma.errors import LabError
from livedma.lab import packages

LIKE = re.compile(r"6\.12\.(\d+)\+deb12-amd64")


class Apt:
    """Takes apt's place: what it knows before and after an update, and what the archive has."""

    def __init__(self, *before: str, after: tuple[str, ...] = (), release: str = "6.1.0-9") -> None:
        self.known, self._after = before, after
        self.archive = {*after} or {*before, release}
        self._release = release
        self.updates = 0

    def output(self, *argv: str | Path, cwd: Path | None = None) -> str:
        match argv:
            case ("apt-cache", "pkgnames", _):
                return "\n".join(f"linux-image-{name}" for name in self.known)
            case ("apt-cache", "depends", _):
                return f"linux-image-amd64\n  Depends: linux-image-{self._release}\n"
            case ("apt-get", "-q", "update"):
                self.updates += 1
                self.known = self._after or self.known
            case ("apt-get", *_, "download", str(package)):
                if package.removeprefix("linux-image-") not in self.archive:
                    raise LabError(f"{package}: 404")
                assert cwd is not None
                (cwd / f"{package}.deb").touch()
            case ("dpkg-deb", "-x", package, directory):
                assert Path(package).parent == directory
        return ""


@pytest.mark.parametrize(
    ("apt", "fetched", "updates"),
    [
        (Apt("6.12.9+deb12-amd64", "6.12.10+deb12-amd64", "6.1.0-9"), "6.12.10+deb12-amd64", 0),
        (Apt("6.1.0-9", "6.12.9+deb12-rt-amd64"), "6.1.0-9", 0),
        (Apt(after=("6.12.9+deb12-amd64",)), "6.12.9+deb12-amd64", 1),
        (Apt("6.12.8+deb12-amd64", after=("6.12.9+deb12-amd64",)), "6.12.9+deb12-amd64", 1),
    ],
    ids=["the newest", "that of the release", "without lists", "with old lists"],
)
def test_a_kernel(
    apt: Apt, fetched: str, updates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "output", apt.output)
    assert packages.fetch_kernel(LIKE, tmp_path) == fetched
    assert [path.name for path in tmp_path.iterdir()] == [f"linux-image-{fetched}.deb"]
    assert apt.updates == updates


def test_no_kernel_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "output", Apt().output)
    with pytest.raises(LabError, match="apt knows no kernel"):
        packages.fetch_kernel(LIKE, tmp_path)


def test_a_program_that_fails_is_missing_or_takes_too_long() -> None:
    with pytest.raises(LabError, match=r"^sh failed with status 3: two / three / four$"):
        packages.output("sh", "-c", "printf 'one\\ntwo\\nthree\\nfour\\n' >&2; exit 3")
    with pytest.raises(LabError, match="guests are built on Debian"):
        packages.output("no-such-program")
    with pytest.raises(LabError, match=r"^sleep took longer than 0\.1 s$"):
        packages.output("sleep", "60", limit_s=0.1)
