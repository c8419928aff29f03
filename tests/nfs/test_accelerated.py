# SPDX-License-Identifier: BSD-2-Clause
"""The accelerator in a real server, over RDMA: its replies are Python's, and so are its effects."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.nfs import calling
from tests.nfs.accelerating import FileClient, Lab, LeftError, accelerated
from tests.nfs.calling import op

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute, Op, Status
from needs import needs

pytestmark = pytest.mark.slow

CONTENT = bytes(range(251)) * 1200
KNOWN = bits(
    Attribute.TYPE,
    Attribute.CHANGE,
    Attribute.SIZE,
    Attribute.FILEID,
    Attribute.MODE,
    Attribute.NUMLINKS,
    Attribute.SPACE_USED,
    Attribute.TIME_ACCESS,
    Attribute.TIME_METADATA,
    Attribute.TIME_MODIFY,
)
GETATTR = op(Op.GETATTR, lambda out: out.raw(encode_bitmap(KNOWN)))
SEQUENCE_AT = 4 + 4 + 4 + 8 + 16  # of sr_sequenceid, without a tag


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with accelerated(tmp_path, CONTENT) as made:
        yield made


@pytest.fixture
def client(lab: Lab) -> Iterator[FileClient]:
    with FileClient(lab) as made:
        made.enter()
        yield made


def but_sequence(result: calling.Result) -> bytes:
    """A COMPOUND's result, which is another in its sequence alone."""
    return result.raw[:SEQUENCE_AT] + bytes(4) + result.raw[SEQUENCE_AT + 4 :]


@pytest.mark.parametrize(
    ("offset", "count", "room"),
    [
        (0, 4096, 4096),
        (0, 4096, 70_000),
        (100, 200_001, 262_144),
        (len(CONTENT) - 10, 4096, 4096),
        (len(CONTENT), 4096, 4096),
        (1 << 40, 4096, 4096),
        (0, len(CONTENT), 400_000),
        (7, 0, 4096),
        (5, 1001, 0),
        (len(CONTENT) - 3, 1001, 0),
    ],
)
@pytest.mark.parametrize("more", [(), (GETATTR,)])
def test_reads(
    lab: Lab, client: FileClient, offset: int, count: int, room: int, more: tuple[bytes, ...]
) -> None:
    client.read(0, 10)  # the time of access moves once
    results, taken = [], lab.taken
    for is_fast in (True, False):
        lab.set_fast(is_fast)
        results.append(client.read(offset, count, *more, room=room))
        if room:
            assert client.placed == CONTENT[offset : offset + count]
    assert lab.taken == taken + 1
    assert results[0].status == Status.OK
    assert but_sequence(results[0]) == but_sequence(results[1])


@pytest.mark.parametrize("stable", [0, 1, 2])
@pytest.mark.parametrize(
    ("length", "chunk"), [(5, False), (3000, False), (4096, True), (200_003, True)]
)
def test_writes(lab: Lab, client: FileClient, stable: int, length: int, chunk: bool) -> None:
    data = os.urandom(length)
    results, taken = [], lab.taken
    for is_fast in (True, False):
        lab.set_fast(is_fast)
        lab.path.write_bytes(b"")
        results.append(client.write(3, data, stable=stable, chunk=chunk))
        assert lab.path.read_bytes() == bytes(3) + data
    assert lab.taken == taken + 1
    assert results[0].status == Status.OK
    assert but_sequence(results[0]) == but_sequence(results[1])


def test_attributes_after_a_write_are_those_that_python_sees(lab: Lab, client: FileClient) -> None:
    seen = []
    for number in range(5):
        written = client.write(number, b"data", GETATTR)
        looked = client.do(client.putfh(), GETATTR)
        assert written.raw.endswith(looked.raw[looked.raw.index(GETATTR[4:]) :])
        seen.append(written.raw)
    assert lab.taken == 5
    assert len({raw[-76:-68] for raw in seen}) == 5  # each change is another


def test_commits(lab: Lab, client: FileClient) -> None:
    results = []
    for is_fast in (True, False):
        lab.set_fast(is_fast)
        results.append(client.commit())
    assert lab.taken == 1
    assert but_sequence(results[0]) == but_sequence(results[1])
    assert results[0].raw.endswith(lab.server.store.verifier)


def test_verifier_is_one(lab: Lab, client: FileClient) -> None:
    lab.server.store.write_verifier.renew()
    for is_fast in (True, False):
        lab.set_fast(is_fast)
        assert client.commit().raw.endswith(lab.server.store.verifier)
        assert client.write(0, b"data").raw.endswith(lab.server.store.verifier)


def test_write_is_executed_once(lab: Lab, client: FileClient) -> None:
    """Again on the same connection, on another one, and after others wrote."""
    first = client.write(0, b"first")
    lab.path.write_bytes(b"others")
    assert client.write(0, b"first", is_again=True).raw == first.raw
    with FileClient(lab) as again:
        again.take_over(client)
        assert again.write(0, b"first", is_again=True).raw == first.raw
        assert again.write(0, b"again").status == Status.OK
    assert lab.path.read_bytes() == b"agains"
    assert lab.taken == 2


@pytest.mark.parametrize("length", [100, 200_000])
def test_connection_lost_in_the_middle_of_a_write(
    lab: Lab, client: FileClient, length: int
) -> None:
    """Whether its data had come or not: asked again, it is executed, or was."""
    lab.accelerator.store_delay_s = 0.05
    data = os.urandom(length)
    client.is_leaving = True
    with pytest.raises(LeftError):
        client.write(0, data, chunk=length > 4096)
    client.close()
    with FileClient(lab) as again:
        again.take_over(client)
        status = Status.DELAY
        while status == Status.DELAY:
            status = again.write(0, data, chunk=length > 4096, is_again=True).status
        assert status == Status.OK
        assert lab.path.read_bytes()[:length] == data
        lab.path.write_bytes(b"others")
        assert again.write(0, data, chunk=length > 4096, is_again=True).status == Status.OK
        assert lab.path.read_bytes() == b"others"
        (session,) = lab.server.sessions.all()
        counters = session.slots.counters
        assert counters["writes"] <= 1  # or Python did it
        assert again.read(0, 6).status == Status.OK


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    needs(os.geteuid() == 0, "mounting takes root")
    export = tmp_path / "export"
    export.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(export)]
    needs(subprocess.run(mount, check=False).returncode == 0, "nothing can be mounted here")
    yield tmp_path
    subprocess.run(["umount", str(export)], check=True)


def fill_up(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", 0) as filler:
        while True:
            filler.write(bytes(4096))


def test_full_disk(small_disk: Path) -> None:
    """A memory file system, too: whether it reads without waiting or not."""
    content = CONTENT[:100_000]
    with accelerated(small_disk, content) as lab, FileClient(lab) as client:
        client.enter()
        assert client.read(0, 100_000, room=100_000).status == Status.OK
        assert client.placed == content
        fill_up(lab.path.parent / "filler")
        results = []
        for is_fast in (True, False):
            lab.set_fast(is_fast)
            results.append(client.write(250_000, bytes(30_000), GETATTR, chunk=True))
        assert results[0].status == Status.NOSPC
        assert but_sequence(results[0]) == but_sequence(results[1])
        lab.set_fast(True)
        assert client.write(0, b"there is room for that").status == Status.OK
        assert lab.taken == 3
        assert lab.accelerator.served("write")["errors"] == 1


def test_read_is_not_kept(client: FileClient) -> None:
    client.read(0, 100)
    assert client.read(0, 100, is_again=True).status == Status.RETRY_UNCACHED_REP
    assert client.read(0, 100).status == Status.OK


def test_others_are_left_to_python(lab: Lab, client: FileClient) -> None:
    stranger = calling.AuthSys(0, b"client", 1234, 1234)
    client.credential = stranger
    assert client.read(0, 100).status == Status.OK  # everybody may
    client.credential = calling.ROOT
    client.stateid = client.stateid[:4] + b"another one!"
    assert client.read(0, 100).status == Status.BAD_STATEID
    client.stateid = bytes(16)
    assert client.read(0, 100).status == Status.OK
    assert lab.taken == 0


def test_closed_file(lab: Lab, client: FileClient) -> None:
    assert lab.accelerator.grants == 1
    assert client.read(0, 100).status == Status.OK
    assert client.close_file().status == Status.OK
    assert lab.accelerator.grants == 0
    assert client.read(0, 100).status == Status.BAD_STATEID
    assert lab.taken == 1


def test_sessions_come_and_go(lab: Lab, client: FileClient) -> None:
    assert len(lab.accelerator.sessions) == 1
    client.read(0, 100)
    (session,) = lab.server.sessions.all()
    assert session.slots.counters["reads"] == 1
    assert session.was_used()
    client.read(0, 100)
    assert session.was_used() and not session.was_used()  # the lease is renewed
    assert client.status(calling.destroy_session(client.id)) == Status.OK
    assert len(lab.accelerator.sessions) == 0
    assert client.read(0, 100).status == Status.BADSESSION


def test_limits_of_a_session(lab: Lab) -> None:
    """What it was not made for is refused, not served."""
    with FileClient(lab) as client:
        client.enter()
        session = lab.server.sessions.find(client.id)
        assert session.slots.response_max == session.fore.response_bytes
        session.slots.response_max = 4096
        taken = lab.taken
        client.read(0, 8192, room=8192)
        assert lab.taken == taken


def test_slow_disk(lab: Lab, client: FileClient) -> None:
    lab.accelerator.store_delay_s = 0.02
    client.read(0, 70_000, room=70_000)
    assert client.placed == CONTENT[:70_000]
    count, total_ns, longest_ns, buckets = lab.accelerator.storage_times("read")
    assert count == 2 == sum(many for _, many in buckets)
    assert total_ns >= 40_000_000 and longest_ns >= 20_000_000
    assert lab.accelerator.counters["by_worker"] == 2
    assert lab.accelerator.served("read") == {"calls": 1, "bytes": 70_000, "errors": 0}


def test_set_user_id_goes_with_the_first_write(lab: Lab, client: FileClient) -> None:
    lab.path.chmod(0o4755)
    assert client.write(0, b"data").status == Status.OK
    assert stat.S_IMODE(lab.path.stat().st_mode) == 0o755
    assert lab.taken == 1
