# SPDX-License-Identifier: BSD-2-Clause
"""The file of a token: made for its owner alone, and refused if others may read it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from livedma.errors import LivedmaError
from livedma.ui.web.token import fresh, is_same, kept
from needs import needs


def test_a_new_one_each_time_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    first = fresh(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == first + "\n"
    assert len(first) >= 32
    path.chmod(0o644)
    assert fresh(path) != first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "token").symlink_to(victim)
    fresh(tmp_path / "token")
    assert victim.read_text() == "precious"


def test_one_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "token"
    made = kept(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept(path) == made
    path.write_text("  one-that-somebody-wrote\n")
    assert kept(path) == "one-that-somebody-wrote"


def test_one_that_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    kept(path)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(LivedmaError, match="chmod 600"):
            kept(path)


@pytest.mark.parametrize("text", ["", "short", "x" * 257, "with spaces in it, long", "é" * 20])
def test_what_is_no_token(text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(LivedmaError, match="is no token file: name another"):
        kept(path)


@pytest.mark.parametrize("name", ["/etc/passwd", "/proc/cpuinfo", "/dev/null", "/dev/zero"])
def test_a_file_of_the_system_is_left_alone(name: str) -> None:
    """A user that follows the advice must not lock all users out."""
    with pytest.raises(LivedmaError, match="is no token file: name another") as told:
        kept(Path(name))
    assert "chmod" not in str(told.value)


def test_one_of_another_user(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "giving a file away needs root")
    path = tmp_path / "token"
    kept(path)
    os.chown(path, 65534, 65534)
    with pytest.raises(LivedmaError, match="belongs to another user") as told:
        kept(path)
    assert "chmod" not in str(told.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(LivedmaError, match="is no token file"):
        kept(tmp_path / "pipe")
    with pytest.raises(LivedmaError, match="is no token file"):
        kept(tmp_path)
    with pytest.raises(LivedmaError, match="No such file"):
        kept(tmp_path / "nowhere" / "token")
    with pytest.raises(LivedmaError, match="No such file"):
        fresh(tmp_path / "nowhere" / "token")


def test_the_same_or_not() -> None:
    assert is_same("abc", "abc")
    assert not is_same("abcd", "abc")
    assert not is_same("", "abc")
    assert not is_same("\udcff", "abc")
