# SPDX-License-Identifier: BSD-2-Clause
"""Local programs beside delegations: the kernel's leases hold them until the client has let go."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from delegating import PATIENCE_S, BackPeer, Delegating, delegating, until
from open_calls import by_name

from livedma.nfs.numbers import Status
from livedma.nfs.server.state.leases import Leases
from livedma.nfs.server.state.shares import WRITE
from needs import needs

OVERFLOW = struct.pack("@iIII", -1, 0x4000, 0, 0)

WRITER = """
import sys
with open(sys.argv[1], "r+b") as file:
    print("open", flush=True)
    file.write(b"local")
"""


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Delegating]:
    with delegating(tmp_path) as ret:
        ret.file("a")
        yield ret


@pytest.fixture
def hers(serving: Delegating) -> Iterator[BackPeer]:
    with BackPeer(serving) as peer:
        peer.join(b"her")
        yield peer


def writer(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)


def test_a_local_writer_waits(serving: Delegating, hers: BackPeer) -> None:
    stateid = hers.delegated("a")
    path = serving.path / "a"
    with writer(path) as process:
        assert hers.answered().stateid == stateid
        assert process.poll() is None
        assert path.read_bytes() == b"0123456789"
        assert hers.read("a", stateid) == Status.OK
        assert hers.give_back("a", stateid) == Status.OK
        assert process.wait(PATIENCE_S) == 0
    assert path.read_bytes() == b"local56789"


def test_who_does_not_wait_is_refused(serving: Delegating, hers: BackPeer) -> None:
    stateid = hers.delegated("a")
    flags = os.O_WRONLY | os.O_NONBLOCK
    with pytest.raises(BlockingIOError):
        os.open(serving.path / "a", flags)
    assert hers.answered().stateid == stateid
    assert hers.give_back("a", stateid) == Status.OK
    os.close(os.open(serving.path / "a", flags))


def test_cutting_a_file_short(serving: Delegating, hers: BackPeer) -> None:
    stateid = hers.delegated("a")
    script = "import os, sys; os.truncate(sys.argv[1], 3)"
    with subprocess.Popen([sys.executable, "-c", script, str(serving.path / "a")]) as process:
        hers.answered()
        assert (serving.path / "a").stat().st_size == 10
        hers.give_back("a", stateid)
        assert process.wait(PATIENCE_S) == 0
    assert (serving.path / "a").stat().st_size == 3


def test_local_readers_go_on(serving: Delegating, hers: BackPeer) -> None:
    stateid = hers.delegated("a")
    assert (serving.path / "a").read_bytes() == b"0123456789"
    assert hers.test(stateid) == Status.OK
    assert not hers.calls


def test_revoked_when_the_kernel_lets_the_writer_go_on(serving: Delegating, hers: BackPeer) -> None:
    """Which is before a lease has passed: nobody shall rely on what may change from then on."""
    assert Leases.break_s() < serving.server.config.lease_s
    stateid = hers.delegated("a")
    with writer(serving.path / "a") as process:
        hers.answered()
        serving.wait(Leases.break_s() - 1)
        assert process.poll() is None and hers.test(stateid) == Status.OK
        serving.wait(1)
        assert hers.test(stateid) == Status.DELEG_REVOKED
        assert process.wait(PATIENCE_S) == 0


def test_the_end_of_the_server_lets_go(tmp_path: Path) -> None:
    with delegating(tmp_path) as serving, BackPeer(serving) as peer:
        path = serving.file("a")
        peer.join(b"her")
        peer.delegated("a")
        process = writer(path)
        peer.called()
    with process:
        assert process.wait(PATIENCE_S) == 0


def test_many_are_broken_at_once(serving: Delegating, hers: BackPeer) -> None:
    """Signals may be merged; each broken lease is seen."""
    names = [str(number) for number in range(40)]
    for name in names:
        serving.file(name)
    stateids = {hers.delegated(name): name for name in names}
    for name in names:
        with pytest.raises(BlockingIOError):
            os.open(serving.path / name, os.O_WRONLY | os.O_NONBLOCK)
    for _ in names:
        stateid = hers.answered().stateid
        assert hers.give_back(stateids.pop(stateid), stateid) == Status.OK
    assert not stateids


def test_a_file_that_is_a_running_program(serving: Delegating, hers: BackPeer) -> None:
    """Nobody can write to it anyway; a delegation does no harm."""
    program = serving.path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as process:
        until(lambda: Path(f"/proc/{process.pid}/exe").resolve() == program.resolve())
        stateid = hers.delegated("program")
        assert hers.give_back("program", stateid) == Status.OK
        process.kill()


def test_a_client_that_comes_while_a_local_program_waits(
    serving: Delegating, hers: BackPeer
) -> None:
    stateid = hers.delegated("a")
    with BackPeer(serving) as his, writer(serving.path / "a") as process:
        his.join(b"him")
        hers.answered()
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        assert hers.give_back("a", stateid) == Status.OK
        assert process.wait(PATIENCE_S) == 0
        assert his.try_open(by_name(b"a"), WRITE).status == Status.OK


@pytest.mark.parametrize("what", ["chmod", "utime", "link", "rename", "unlink", "xattr"])
def test_local_changes_of_attributes_and_names(
    serving: Delegating, hers: BackPeer, what: str
) -> None:
    """Nobody is held for these; clients are told."""
    stateid = hers.delegated("a")
    path = serving.path / "a"
    if what == "chmod":
        path.chmod(0o600)
    elif what == "utime":
        os.utime(path)
    elif what == "link":
        (serving.path / "b").hardlink_to(path)
    elif what == "rename":
        path.rename(serving.path / "b")
    elif what == "unlink":
        path.unlink()
    else:
        try:
            os.setxattr(path, "user.k", b"v")
        except OSError:
            needs(False, "the filesystem has no extended attributes of users")
    assert hers.answered().stateid == stateid


def test_a_file_that_several_have(serving: Delegating, hers: BackPeer) -> None:
    """It is watched until the last has given it back."""
    with BackPeer(serving) as his:
        his.join(b"him")
        mine, yours = hers.delegated("a"), his.delegated("a")
        assert hers.give_back("a", mine) == Status.OK
        (serving.path / "a").chmod(0o600)
        assert his.answered().stateid == yours


def test_more_changes_than_the_kernel_tells(
    serving: Delegating, hers: BackPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stateid = hers.delegated("a")
    watches = serving.server.delegations._watches
    assert watches is not None
    monkeypatch.setattr(watches, "_read", iter([OVERFLOW, b"", *[b""] * 9]).__next__)
    (serving.path / "a").chmod(0o600)
    assert hers.answered().stateid == stateid
