# SPDX-License-Identifier: BSD-2-Clause
"""A whole server under attack: sessions, handles and stateids that are stolen or forged."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.nfs import calling
from tests.nfs.besieged import (
    CONTENT,
    ELSEWHERE,
    GOOD,
    INTRUDERS,
    OTHER,
    STRANGER,
    Intruder,
    Siege,
    Stream,
)
from tests.nfs.calling import PUTROOTFH, op
from tests.nfs.open_calls import downgrade_args
from tests.nfs.stores import make_store

from livedma.nfs.numbers import Op, Status
from livedma.nfs.stateid import Stateid
from livedma.rdma import Device
from livedma.rpc.xdr import Decoder, Encoder

pytestmark = pytest.mark.slow


@pytest.fixture
def thief(siege: Siege) -> Iterator[Intruder]:
    """Another client at the same address."""
    with Intruder(siege, OTHER) as made:
        made.enter()
        yield made
        made.leave()


@pytest.fixture
def stranger(siege: Siege) -> Iterator[calling.Peer]:
    """A peer at another address, without a session."""
    with Stream(siege, ELSEWHERE) as stream:
        yield stream.peer(OTHER)


def session_facts(siege: Siege, session: bytes) -> dict[str, object]:
    (facts,) = (one for one in siege.control.ask("sessions") if one["id"] == session.hex())
    ret: dict[str, object] = facts
    return ret


def test_good_sessions_from_elsewhere(siege: Siege, stranger: calling.Peer) -> None:
    """Over TCP: neither used, bound, destroyed nor learnt of."""
    for good in siege.good.clients.values():
        stolen = good.through.session_id
        facts = session_facts(siege, stolen)
        client = facts["client"]
        assert isinstance(client, int)
        for number in (1, 2, 0xFFFFFFFF):
            ops = (calling.sequence(stolen, number, 3, 3), PUTROOTFH)
            assert stranger.status(*ops) == Status.CONN_NOT_BOUND_TO_SESSION
        assert stranger.status(calling.bind(stolen)) == Status.WRONG_CRED
        assert stranger.status(calling.destroy_session(stolen)) == Status.CONN_NOT_BOUND_TO_SESSION
        assert stranger.status(calling.destroy_clientid(client)) == Status.CLIENTID_BUSY
        assert session_facts(siege, stolen)["connections"] == facts["connections"]


def test_a_client_id_is_not_enough_for_its_sessions(
    siege: Siege, intruder: Intruder, stranger: calling.Peer
) -> None:
    """A client that finds a lock in the way learns a client ID. With one, a stranger neither
    gets the session's id told once more, nor a session of its own with the client's state."""
    for number in (1, 2):
        result = stranger.send(calling.create_session(intruder.client, number))
        assert result.status == Status.WRONG_CRED
        assert intruder.id not in result.raw
    assert session_facts(siege, intruder.id)["client"] == intruder.client
    # Where the client is known to be, anybody may: RFC 8881 18.36.4 has no principal there.
    with Stream(siege, INTRUDERS) as stream:
        neighbour = stream.peer(OTHER)
        made = neighbour.another(intruder.client, 2)
        assert neighbour.status(calling.destroy_session(made)) == Status.OK


def test_an_owner_is_not_enough_to_be_a_client(siege: Siege, stranger: calling.Peer) -> None:
    for good in siege.good.clients.values():
        owner = good.identity.owner
        for flags, status in ((0, Status.CLID_INUSE), (calling.UPDATE, Status.NOT_SAME)):
            assert stranger.status(calling.exchange_id(owner, flags=flags)) == status


def test_a_stolen_session_over_rdma(siege: Siege, intruder: Intruder) -> None:
    """By the shape that the accelerator takes: from another address it is refused."""
    before = session_facts(siege, intruder.id)["counters"]
    with Device(ELSEWHERE) as device, Intruder(siege, STRANGER, device) as elsewhere:
        elsewhere.take_over(intruder)
        assert elsewhere.read(0, 100).status == Status.CONN_NOT_BOUND_TO_SESSION
        elsewhere.number = intruder.number
        assert elsewhere.write(0, b"stolen").status == Status.CONN_NOT_BOUND_TO_SESSION
        elsewhere.number = intruder.number
        assert elsewhere.commit().status == Status.CONN_NOT_BOUND_TO_SESSION
    assert session_facts(siege, intruder.id)["counters"] == before
    assert siege.file.read_bytes() == CONTENT
    assert intruder.read(0, 8).status == Status.OK


def test_games_with_slots(siege: Siege, intruder: Intruder) -> None:
    """By a neighbour that may use the session: what was asked is never answered to another."""
    listed = intruder.do(PUTROOTFH, op(Op.GETATTR, lambda out: out.u32(1, 0x1A)))
    assert listed.status == Status.OK
    last, stolen = intruder.number, intruder.id
    with Stream(siege, INTRUDERS) as stream:
        thief = stream.peer(OTHER)
        games = [
            (calling.sequence(stolen, last + 2), Status.SEQ_MISORDERED),
            (calling.sequence(stolen, last - 1), Status.SEQ_MISORDERED),
            (calling.sequence(stolen, 0), Status.SEQ_MISORDERED),
            (calling.sequence(stolen, last, 0), Status.SEQ_FALSE_RETRY),
            (calling.sequence(stolen, 2, 1, 1), Status.SEQ_MISORDERED),
            (calling.sequence(stolen, 1, 1 << 20, 0), Status.BADSLOT),
            (calling.sequence(stolen, 1, 0xFFFFFFFF, 0xFFFFFFFF), Status.BADSLOT),
            (calling.sequence(stolen, last + 1, 0, 0xFFFFFFFF), Status.BAD_HIGH_SLOT),
            (calling.sequence(os.urandom(16)), Status.BADSESSION),
            (calling.sequence(bytes(16)), Status.BADSESSION),
        ]
        for asked, status in games:
            for more in ((PUTROOTFH,), (PUTROOTFH, op(Op.GETATTR, lambda out: out.u32(1, 0x1A)))):
                result = thief.send(asked, *more)
                assert (result.status, result.ops) == (status, 1)
        # The very same request, but by somebody else.
        again = (calling.sequence(stolen, last), PUTROOTFH)
        same = op(Op.GETATTR, lambda out: out.u32(1, 0x1A))
        assert thief.status(*again, same) == Status.SEQ_FALSE_RETRY
    assert intruder.read(0, 8).status == Status.OK


def flipped(data: bytes) -> Iterator[bytes]:
    """A bit of each byte is another one."""
    for at in range(len(data)):
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def test_forged_handles(intruder: Intruder) -> None:
    """By a READ that the accelerator looks at, and by LOOKUP: not one is anybody's."""
    right = intruder.handle
    forged = [*flipped(right), right[:-1], right + b"\0", bytes(len(right)), os.urandom(64), b"\0"]
    for handle in forged:
        intruder.handle = handle
        assert intruder.read(0, 8).status in (Status.BADHANDLE, Status.STALE), handle
        assert intruder.write(0, b"forged").status in (Status.BADHANDLE, Status.STALE)
        looked = intruder.do(intruder.putfh(), op(Op.LOOKUPP))
        assert looked.status in (Status.BADHANDLE, Status.STALE)
    intruder.handle = bytes(129)
    assert intruder.read(0, 8).status == Status.BADXDR
    intruder.handle = right
    assert intruder.read(0, 8).status == Status.OK


def test_handles_of_another_export(siege: Siege, intruder: Intruder) -> None:
    """Real ones of the same filesystem, of the canary and of this very file; another's secret."""
    right = intruder.handle
    for directory, names in (("canary", (b"inner", b"secret")), ("export", (b"file",))):
        store = make_store(siege.directory / directory, True)
        try:
            node = store.root
            handles = [node.handle]
            for name in names:
                node = store.lookup(node, name)
                handles.append(node.handle)
        finally:
            store.close()
        for handle in handles:
            intruder.handle = handle
            assert intruder.read(0, 100).status in (Status.BADHANDLE, Status.STALE)
            listed = intruder.do(intruder.putfh(), op(Op.GETATTR, lambda out: out.u32(1, 0x1A)))
            assert listed.status in (Status.BADHANDLE, Status.STALE)
    intruder.handle = right


@pytest.mark.parametrize("name", [b"..", b".", b"/", b"../canary", b"way-out/x", b"", b"a\0b"])
def test_names_that_lead_out(intruder: Intruder, name: bytes) -> None:
    looked = intruder.do(PUTROOTFH, op(Op.LOOKUP, lambda out: out.opaque(name)))
    assert looked.status in (Status.BADNAME, Status.INVAL, Status.BADCHAR, Status.NOENT)
    assert intruder.do(PUTROOTFH, op(Op.LOOKUPP)).status == Status.NOENT
    opened = intruder.do(PUTROOTFH, intruder.open_op(name))
    assert opened.status in (Status.BADNAME, Status.INVAL, Status.BADCHAR, Status.NOENT)


def test_links_are_not_followed(intruder: Intruder) -> None:
    assert intruder.do(PUTROOTFH, intruder.open_op(b"way-out")).status == Status.SYMLINK
    link = op(Op.LOOKUP, lambda out: out.opaque(b"way-out"))
    secret = op(Op.LOOKUP, lambda out: out.opaque(b"secret"))
    assert intruder.do(PUTROOTFH, link, secret).status == Status.SYMLINK
    anonymous = op(Op.READ, lambda out: (out.raw(bytes(16)), out.u64(0), out.u32(100)))
    assert intruder.do(PUTROOTFH, link, anonymous).status in (Status.SYMLINK, Status.INVAL)


def refused(intruder: Intruder, stateid: bytes, status: Status) -> None:
    """By READ and WRITE of the accelerator's shape."""
    right = intruder.stateid
    intruder.stateid = stateid
    assert intruder.read(0, 100).status == status
    assert intruder.read(0, 100, room=100).status == status
    assert intruder.write(0, b"forged").status == status
    assert intruder.write(0, bytes(5000), chunk=True).status == status
    intruder.stateid = right


def test_forged_stateids(siege: Siege, intruder: Intruder) -> None:
    right = intruder.stateid
    assert intruder.read(0, 100).status == Status.OK
    served = session_facts(siege, intruder.id)["counters"]
    for other in flipped(right[4:]):
        refused(intruder, right[:4] + other, Status.BAD_STATEID)
    refused(intruder, b"\0\0\0\2" + right[4:], Status.BAD_STATEID)  # a version to come
    refused(intruder, b"\0\0\0\0" + b"\0\0\0\0" + right[8:], Status.BAD_STATEID)  # another boot's
    refused(intruder, b"\xff\xff\xff\xff" + bytes(12), Status.BAD_STATEID)
    assert isinstance(served, dict)
    after = session_facts(siege, intruder.id)["counters"]
    assert isinstance(after, dict)
    assert (after["reads"], after["writes"]) == (served["reads"], served["writes"]) == (1, 0)
    assert siege.file.read_bytes() == CONTENT


def test_stateids_of_others(siege: Siege, intruder: Intruder, thief: Intruder) -> None:
    """In the thief's own session; and in its own, on another file."""
    refused(thief, intruder.stateid, Status.BAD_STATEID)
    refused(thief, bytes(4) + intruder.stateid[4:], Status.BAD_STATEID)
    handle, thief.handle = thief.handle, thief.lookup(b"other")
    refused(thief, thief.stateid, Status.BAD_STATEID)
    thief.handle = handle
    right, thief.stateid = thief.stateid, intruder.stateid
    assert thief.close_file().status == Status.BAD_STATEID
    thief.stateid = right
    assert intruder.read(0, 100).status == Status.OK
    assert siege.file.read_bytes() == CONTENT


def test_stateid_after_close(siege: Siege, intruder: Intruder) -> None:
    """Replayed in any version; then the same file opened again has another one."""
    closed = intruder.stateid
    assert intruder.write(0, CONTENT[:100]).status == Status.OK
    assert intruder.close_file().status == Status.OK
    for seqid in (b"\0\0\0\0", b"\0\0\0\1", b"\0\0\0\2"):
        refused(intruder, seqid + closed[4:], Status.BAD_STATEID)
    opened = intruder.do(PUTROOTFH, intruder.open_op(b"file"))
    intruder.stateid = opened.last.fixed(16)
    assert intruder.stateid[4:] != closed[4:]
    refused(intruder, closed, Status.BAD_STATEID)
    assert siege.file.read_bytes() == CONTENT


def test_stateid_of_an_open_to_read(siege: Siege, intruder: Intruder) -> None:
    """WRITE is OPENMODE: opened so, and downgraded to it; old versions are no way around."""
    opened = intruder.do(PUTROOTFH, intruder.open_op(b"file", access=1))
    before = opened.last.fixed(16)
    downgraded = op(Op.OPEN_DOWNGRADE) + bytes(downgrade_args(_stateid(before), 1))
    intruder.stateid = intruder.do(intruder.putfh(), downgraded).last.fixed(16)
    for stateid, status in (
        (intruder.stateid, Status.OPENMODE),
        (bytes(4) + before[4:], Status.OPENMODE),
        (before, Status.OLD_STATEID),
    ):
        right, intruder.stateid = intruder.stateid, stateid
        assert intruder.write(0, b"not mine").status == status
        assert intruder.write(0, bytes(5000), chunk=True).status == status
        intruder.stateid = right
    assert intruder.read(0, 8).status == Status.OK
    assert siege.file.read_bytes() == CONTENT


def _stateid(data: bytes) -> Stateid:
    return Stateid.decode(Decoder(data))


def test_another_user_in_the_same_session(siege: Siege, intruder: Intruder) -> None:
    """A user that may not open the file may not use another user's open, either."""
    siege.file.chmod(0o600)
    try:
        os.chown(siege.file, STRANGER.uid, STRANGER.gid)
        assert intruder.read(0, 100).status == Status.OK
        for credential in (OTHER, GOOD, calling.ROOT):  # root is nobody here
            intruder.credential = credential
            refused(intruder, intruder.stateid, Status.ACCESS)
        intruder.credential = STRANGER
        assert intruder.read(0, 100).status == Status.OK
    finally:
        siege.file.chmod(0o666)
        os.chown(siege.file, 0, 0)
    assert siege.file.read_bytes() == CONTENT


def test_locks_of_others(intruder: Intruder, thief: Intruder) -> None:
    """LOCKU, LOCK, FREE_STATEID and TEST_STATEID with another client's lock: it stays."""

    def first_by(one: Intruder) -> bytes:
        def write(out: Encoder) -> None:
            out.u32(2, 0)
            out.u64(0)
            out.u64(10)
            out.u32(1, 0)
            out.raw(one.stateid)
            out.u32(0)
            out.u64(0)
            out.opaque(b"locker")

        return op(Op.LOCK, write)

    locked = intruder.do(intruder.putfh(), first_by(intruder))
    assert locked.status == Status.OK
    lock = locked.last.fixed(16)
    unlock = op(Op.LOCKU, lambda out: (out.u32(2, 0), out.raw(lock), out.u64(0), out.u64(10)))
    assert thief.do(thief.putfh(), unlock).status == Status.BAD_STATEID
    free = op(Op.FREE_STATEID, lambda out: out.raw(lock))
    assert thief.do(free).status == Status.BAD_STATEID
    tested = thief.do(op(Op.TEST_STATEID, lambda out: (out.u32(1), out.raw(lock))))
    assert (tested.last.u32(), tested.last.u32()) == (1, Status.BAD_STATEID)
    refused(thief, lock, Status.BAD_STATEID)
    assert thief.do(thief.putfh(), first_by(thief)).status == Status.DENIED
    assert intruder.do(intruder.putfh(), unlock).status == Status.OK
