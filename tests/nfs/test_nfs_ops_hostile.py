# SPDX-License-Identifier: BSD-2-Clause
"""Operations on files with arguments that mean no good: errors of the protocol, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.nfs.calling import PUTROOTFH, Export, Peer, exported, op, sequence
from tests.nfs.operating import fattr, stateid, u64, xdr

from livedma.nfs.bitmap import encode_bitmap
from livedma.nfs.numbers import Attribute, Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.store import Kind

pytestmark = pytest.mark.slow

NAME = xdr(b"name")
RIGHT = {
    Op.ACCESS: xdr(0x3F),
    Op.ALLOCATE: stateid() + u64(0, 1),
    Op.COMMIT: u64(0) + xdr(0),
    Op.COPY: stateid() * 2 + u64(0, 0, 0) + xdr(1, 1, 0),
    Op.CREATE: xdr(Kind.LNK, b"to", b"name") + fattr({Attribute.MODE: xdr(0o644)}),
    Op.DEALLOCATE: stateid() + u64(0, 1),
    Op.GETATTR: xdr(2, 0xFFFFFFFF, 0xFFFFFFFF),
    Op.GETXATTR: NAME,
    Op.LINK: NAME,
    Op.LISTXATTRS: u64(0) + xdr(4096),
    Op.LOOKUP: NAME,
    Op.LOOKUPP: b"",
    Op.NVERIFY: fattr({Attribute.TYPE: xdr(1)}),
    Op.READ: stateid() + u64(0) + xdr(100),
    Op.READDIR: u64(0) + bytes(8) + xdr(0, 4096, 1, 2),
    Op.READLINK: b"",
    Op.REMOVE: NAME,
    Op.REMOVEXATTR: NAME,
    Op.RENAME: NAME + xdr(b"other"),
    Op.SEEK: stateid() + u64(0) + xdr(0),
    Op.SETATTR: stateid()
    + fattr({Attribute.OWNER: xdr(b"0"), Attribute.TIME_MODIFY_SET: xdr(1, 0, 0, 0)}),
    Op.SETXATTR: xdr(0, b"name", b"value"),
    Op.VERIFY: fattr({Attribute.TYPE: xdr(1)}),
    Op.WRITE: stateid() + u64(0) + xdr(0, b"data"),
}


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    with exported(tmp_path, Config(squash="none")) as ret:
        yield ret


@pytest.fixture
def peer(export: Export) -> Peer:
    return Peer(export.program)


class Slot:
    """Counts the requests of a session's slot."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.session, self.number = peer, peer.session()[1], 0

    def status(self, number: Op, arguments: bytes, *before: bytes) -> Status:
        self.number += 1
        sent = op(number) + arguments
        first = sequence(self.session, self.number)
        return self.peer.send(first, *before, sent, minor=2).status


@pytest.mark.parametrize("number", list(RIGHT))
def test_arguments_that_end_too_early(peer: Peer, number: Op) -> None:
    slot = Slot(peer)
    arguments = RIGHT[number]
    for length in range(0, len(arguments), 4):
        status = slot.status(number, arguments[:length], PUTROOTFH, op(Op.SAVEFH))
        assert status == Status.BADXDR, length


@pytest.mark.parametrize("number", list(RIGHT))
def test_without_a_file(peer: Peer, number: Op) -> None:
    assert Slot(peer).status(number, RIGHT[number]) == Status.NOFILEHANDLE


@settings(
    max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(data=st.data())
def test_noise(export: Export, data: st.DataObject) -> None:
    """Whatever is changed in the arguments: the server answers, and has foreseen what it was."""
    number = data.draw(st.sampled_from(list(RIGHT)))
    arguments = bytearray(RIGHT[number])
    for _ in range(data.draw(st.integers(0, 3))):
        if arguments:
            at = data.draw(st.integers(0, len(arguments) - 1))
            arguments[at] = data.draw(st.integers(0, 255))
    tail = xdr(*data.draw(st.lists(st.integers(0, 0xFFFFFFFF), max_size=4)))
    status = Slot(Peer(export.program)).status(
        number, bytes(arguments) + tail, PUTROOTFH, op(Op.SAVEFH)
    )
    assert status != Status.SERVERFAULT


@pytest.mark.parametrize("number", [Op.SETATTR])
def test_a_failure_before_it_is_served_has_its_body(tmp_path: Path, peer: Peer, number: Op) -> None:
    nothing = encode_bitmap(0)
    sent = op(number) + RIGHT[number]
    result = peer.send(sequence(peer.session()[1]), sent)
    assert (result.status, result.raw[-4:]) == (Status.NOFILEHANDLE, nothing)
    (tmp_path / "other").mkdir()
    with exported(tmp_path / "other", Config(read_only=True)) as reading:
        other = Peer(reading.program)
        result = other.send(sequence(other.session()[1]), PUTROOTFH, sent)
        assert (result.status, result.raw[-4:]) == (Status.ROFS, nothing)


def test_a_read_only_export(tmp_path: Path) -> None:
    changing = {
        Op.ALLOCATE,
        Op.COPY,
        Op.CREATE,
        Op.DEALLOCATE,
        Op.LINK,
        Op.REMOVE,
        Op.REMOVEXATTR,
        Op.RENAME,
        Op.SETATTR,
        Op.SETXATTR,
        Op.WRITE,
    }
    with exported(tmp_path, Config(read_only=True)) as reading:
        slot = Slot(Peer(reading.program))
        for number, arguments in RIGHT.items():
            status = slot.status(number, arguments, PUTROOTFH, op(Op.SAVEFH))
            assert (status == Status.ROFS) == (number in changing), number
