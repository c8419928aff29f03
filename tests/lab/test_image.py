# SPDX-License-Identifier: BSD-2-Clause
"""The image's cache and the errors around it; nothing here builds one."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from livedma.errors import LabError, PrivilegeError
from livedma.lab import image
from livedma.lab.guest import Lab


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LIVEDMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image, "tool", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path / "cache"


class FakeBuild:
    """Takes the place of the real one; counts."""

    started = 0
    fails = False
    may_end = threading.Event()

    def __init__(self, work: Path, say: image.Say) -> None:
        self._work = work

    def run(self) -> None:
        type(self).started += 1
        (self._work / "vmlinuz").write_text("half an image")
        assert self.may_end.wait(30)
        if self.fails:
            raise LabError("the archive cannot be reached")
        (self._work / "image.json").write_text('{"kernel": "6.12.1"}')


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeBuild]:
    class Fresh(FakeBuild):
        started = 0
        may_end = threading.Event()

    monkeypatch.setattr(image, "_Build", Fresh)
    Fresh.may_end.set()
    return Fresh


def test_it_is_built_once(fake: type[FakeBuild], cache: Path) -> None:
    assert image.cached() is None
    first, second = image.build(), image.build()
    assert first == second == image.cached()
    assert first.directory == cache / f"guest-{image.recipe_hash()}"
    assert first.kernel_version == "6.12.1"
    assert fake.started == 1


def test_another_recipe_is_another_image(
    fake: type[FakeBuild], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = image.build()
    files = tmp_path / "guest"
    files.mkdir()
    (files / "init").write_text("another")
    monkeypatch.setattr(image, "_GUEST_FILES", files)
    assert image.cached() is None
    assert image.build() != before
    assert fake.started == 2


def test_images_that_nobody_uses_are_forgotten(fake: type[FakeBuild], cache: Path) -> None:
    for name, age_days in (("guest-old", 15), ("guest-new", 13)):
        (cache / name).mkdir(parents=True)
        then_s = time.time() - age_days * 86400
        os.utime(cache / name, (then_s, then_s))
    image.build()
    assert not (cache / "guest-old").exists()
    assert (cache / "guest-new").exists()


def test_two_builders_wait_for_each_other(fake: type[FakeBuild]) -> None:
    fake.may_end.clear()
    waiting = threading.Event()

    def say(sentence: str) -> None:
        if "another builder" in sentence:
            waiting.set()

    found: list[image.Image] = []
    threads = [threading.Thread(target=lambda: found.append(image.build(say))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert waiting.wait(30)
    fake.may_end.set()
    for thread in threads:
        thread.join(30)
    assert fake.started == 1
    assert len(found) == 2 and found[0] == found[1]


def test_a_failed_build_leaves_nothing(fake: type[FakeBuild], cache: Path) -> None:
    fake.fails = True
    with pytest.raises(LabError, match="cannot be reached"):
        image.build()
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    fake.fails = False
    image.build()


def test_what_a_killed_builder_left_is_removed(fake: type[FakeBuild], cache: Path) -> None:
    left = cache / f"guest-{image.recipe_hash()}.tmp-1"
    left.mkdir(parents=True)
    image.build()
    assert not left.exists()


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(LabError, match="mmdebstrap is missing: apt install mmdebstrap"):
        image.tool("mmdebstrap")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(LabError, match="qemu-system-x86_64 is missing: apt install qemu-system-x8"):
        Lab("x").start()


def test_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(PrivilegeError, match="needs root"):
        image.build()
    with pytest.raises(PrivilegeError, match="need root"):
        Lab("x").start()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LIVEDMA_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(LabError, match="set LIVEDMA_CACHE"):
        image.build()
