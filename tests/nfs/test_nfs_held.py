# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors that states hold: how many there may be, and when they are closed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.state.held import Descriptors, Held, OpenFds
from livedma.nfs.server.state.shares import BOTH, READ, WRITE


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@pytest.fixture
def descriptors() -> Descriptors:
    return Descriptors(2)


def null() -> int:
    return os.open("/dev/null", os.O_RDWR)


@pytest.fixture
def several(descriptors: Descriptors) -> Iterator[list[Held]]:
    descriptors.most = 10
    several = [descriptors.hold(null(), access) for access in (READ, WRITE, BOTH)]
    yield several
    for held in several:
        if is_open(held.fd):
            held.drop()


def test_one_too_many_is_closed(descriptors: Descriptors) -> None:
    held = [descriptors.hold(null(), READ) for _ in range(2)]
    assert descriptors.is_full
    late = null()
    with pytest.raises(NfsError) as failed:
        descriptors.hold(late, READ)
    assert failed.value.status == Status.DELAY
    assert not is_open(late) and len(descriptors) == 2
    held.pop().drop()
    held.append(descriptors.hold(null(), READ))
    for one in held:
        one.drop()
    assert len(descriptors) == 0


def test_the_last_user_closes(descriptors: Descriptors) -> None:
    held = descriptors.hold(null(), READ)
    assert held.take() is held
    held.drop()
    assert is_open(held.fd) and len(descriptors) == 1
    held.drop()
    assert not is_open(held.fd) and len(descriptors) == 0


def test_users_in_many_threads(descriptors: Descriptors) -> None:
    held = descriptors.hold(null(), READ)

    def use() -> None:
        for _ in range(2000):
            held.take().drop()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_open(held.fd)
    held.drop()
    assert not is_open(held.fd)


def test_one_that_can_do_all_makes_others_needless(several: list[Held]) -> None:
    reader, writer, both = several
    fds = OpenFds()
    assert fds.add(reader) == []
    assert fds.most_able is reader and fds.find(WRITE) is None
    assert fds.add(writer) == []
    assert (fds.find(READ), fds.find(WRITE), fds.find(BOTH)) == (reader, writer, None)
    assert fds.most_able is reader
    assert fds.add(both) == [reader, writer]
    assert fds.find(READ) is fds.find(BOTH) is fds.most_able is both
    assert fds.keep(READ) == []
    assert fds.clear() == [both]


def test_less_access(several: list[Held]) -> None:
    reader, writer, _ = several
    fds = OpenFds()
    fds.add(reader)
    fds.add(writer)
    assert fds.keep(WRITE) == [reader]
    assert fds.most_able is writer


def test_by_the_limit_of_the_process() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 2 * Descriptors().most < soft
    script = (
        "import resource; "
        "from livedma.nfs.server.state.held import Descriptors, allow_all_descriptors; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 1000)); few = Descriptors().most; "
        "allow_all_descriptors(); print(few, Descriptors().most)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["50", "372"]
