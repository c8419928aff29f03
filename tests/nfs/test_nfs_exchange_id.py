# SPDX-License-Identifier: BSD-2-Clause
"""EXCHANGE_ID: every case of RFC 8881 18.35.4, and what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import (
    CONFIRMED,
    NON_PNFS,
    OTHER,
    UPDATE,
    Export,
    Peer,
    Wire,
    create_session,
    destroy_session,
    exchange_id,
    exported,
    sequence,
)

from livedma.nfs.numbers import Status
from livedma.nfs.server.config import Config
from livedma.rpc.xdr import Encoder


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    with exported(tmp_path) as export:
        yield export


@pytest.fixture
def peer(export: Export) -> Peer:
    return Peer(export.program)


def other_principal(export: Export, peer: Peer) -> Peer:
    return Peer(export.program, peer.wire, OTHER)


def test_a_new_owner_is_not_confirmed(peer: Peer) -> None:
    number, first, flags = peer.exchange()
    assert (first, flags) == (1, NON_PNFS)
    assert number


def test_two_owners_are_two_clients(peer: Peer) -> None:
    assert peer.exchange(b"one")[0] != peer.exchange(b"two")[0]


@pytest.mark.parametrize("verifier", [b"verifier", b"restart!"])
@pytest.mark.parametrize("is_other", [False, True])
def test_an_unconfirmed_record_is_replaced(
    export: Export, peer: Peer, verifier: bytes, is_other: bool
) -> None:
    before = peer.exchange()[0]
    again = other_principal(export, peer) if is_other else peer
    after = again.exchange(verifier=verifier)[0]
    assert after != before
    assert peer.status(create_session(before)) == Status.STALE_CLIENTID
    assert again.status(create_session(after)) == Status.OK


def test_a_confirmed_record_is_found_again(peer: Peer) -> None:
    number, _ = peer.session()
    assert peer.exchange() == (number, 2, NON_PNFS | CONFIRMED)


def test_a_restarted_client_keeps_its_old_sessions_until_it_has_a_new_one(peer: Peer) -> None:
    before, old = peer.session()
    after, first, flags = peer.exchange(verifier=b"restart!")
    assert after != before and not flags & CONFIRMED
    assert peer.status(sequence(old)) == Status.OK
    new = peer.another(after, first)
    assert peer.status(sequence(old, 2)) == Status.BADSESSION
    assert peer.status(sequence(new)) == Status.OK
    assert peer.status(create_session(before, 2)) == Status.STALE_CLIENTID


def test_a_late_call_of_the_old_incarnation_harms_nobody(peer: Peer) -> None:
    before, _ = peer.session()
    after, first, _ = peer.exchange(verifier=b"restart!")
    assert peer.exchange()[0] == before
    peer.another(after, first)


def test_somebody_elses_owner_is_in_use(export: Export, peer: Peer) -> None:
    peer.session()
    other = other_principal(export, peer)
    assert other.status(exchange_id()) == Status.CLID_INUSE
    assert other.status(exchange_id(verifier=b"restart!")) == Status.CLID_INUSE


def test_somebody_elses_owner_without_state_is_free(export: Export, peer: Peer) -> None:
    number, session = peer.session()
    assert peer.status(destroy_session(session)) == Status.OK
    other = other_principal(export, peer)
    after = other.exchange()[0]
    assert after != number
    assert peer.status(create_session(number, 2)) == Status.STALE_CLIENTID


def test_somebody_elses_owner_is_free_after_its_lease(export: Export, peer: Peer) -> None:
    _, session = peer.session()
    export.clock.now += 91
    other_principal(export, peer).exchange()
    assert peer.status(sequence(session)) == Status.BADSESSION


def test_an_update_finds_the_record(peer: Peer) -> None:
    number, _ = peer.session()
    assert peer.exchange(flags=UPDATE) == (number, 2, NON_PNFS | CONFIRMED)


def test_an_update_needs_a_confirmed_record(export: Export, peer: Peer) -> None:
    assert peer.status(exchange_id(flags=UPDATE)) == Status.NOENT
    peer.exchange()
    assert peer.status(exchange_id(flags=UPDATE)) == Status.NOENT
    other = other_principal(export, peer)
    assert other.status(exchange_id(flags=UPDATE, verifier=b"restart!")) == Status.NOENT


def test_an_update_needs_the_verifier_and_the_principal(export: Export, peer: Peer) -> None:
    peer.session()
    other = other_principal(export, peer)
    wrong = exchange_id(flags=UPDATE, verifier=b"restart!")
    assert peer.status(wrong) == Status.NOT_SAME
    assert other.status(wrong) == Status.NOT_SAME
    assert other.status(exchange_id(flags=UPDATE)) == Status.PERM


@pytest.mark.parametrize("flags", [0x4, 0x8, CONFIRMED, 0x80000, 0x1000])
def test_flags_that_a_client_may_not_set(peer: Peer, flags: int) -> None:
    assert peer.status(exchange_id(flags=flags)) == Status.INVAL


def protection(how: int, hashes: int = 1) -> bytes:
    out = Encoder()
    out.u32(how, 1, 0, 1, 0)
    if how == 2:
        out.array([b"\x2b\x0e\x03\x02\x1a"] * hashes, Encoder.opaque)
        out.array([b"\x60\x86"], Encoder.opaque)
        out.u32(4, 2)
    return bytes(out)


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (protection(1), Status.INVAL),
        (protection(2), Status.HASH_ALG_UNSUPP),
        (protection(2, hashes=0), Status.INVAL),
        ((3).to_bytes(4, "big"), Status.BADXDR),
    ],
)
def test_state_is_protected_by_nothing_else(peer: Peer, how: bytes, status: Status) -> None:
    assert peer.status(exchange_id(protection=how)) == status


def test_one_implementation_is_all_there_may_be(peer: Peer) -> None:
    assert peer.status(exchange_id(implementations=1)) == Status.OK
    assert peer.status(exchange_id(implementations=2)) == Status.BADXDR


def test_an_owner_has_a_kibibyte_at_most(peer: Peer) -> None:
    assert peer.status(exchange_id(bytes(1024))) == Status.OK
    assert peer.status(exchange_id(bytes(1025))) == Status.BADXDR


def identity(peer: Peer) -> tuple[bytes, bytes]:
    result = peer.send(exchange_id())
    result.last.skip(16)
    assert result.last.u32() == 0
    result.last.u64()
    return result.last.opaque(), result.last.opaque()


def test_the_server_is_the_same_after_a_restart_and_its_clients_are_not(tmp_path: Path) -> None:
    with exported(tmp_path) as export:
        peer = Peer(export.program)
        number, session = peer.session()
        before = identity(peer)
    with exported(tmp_path) as export:
        peer = Peer(export.program)
        assert peer.status(create_session(number, 2)) == Status.STALE_CLIENTID
        assert peer.status(sequence(session)) == Status.BADSESSION
        assert identity(peer) == before


def test_another_server_is_another(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with exported(tmp_path / "a") as a, exported(tmp_path / "b") as b:
        assert identity(Peer(a.program)) != identity(Peer(b.program))


def test_an_introduction_is_forgotten_after_a_lease(export: Export, peer: Peer) -> None:
    number = peer.exchange()[0]
    export.clock.now += 89
    export.server.tick()
    assert len(export.server.clients) == 1
    export.clock.now += 2
    assert peer.status(create_session(number)) == Status.STALE_CLIENTID
    export.server.tick()
    assert len(export.server.clients) == 0


def test_introductions_are_bounded_and_the_oldest_goes_first(tmp_path: Path) -> None:
    with exported(tmp_path, Config(clients_most=3)) as export:
        peer = Peer(export.program)
        numbers = [peer.exchange(b"%d" % n)[0] for n in range(4)]
        assert len(export.server.clients) == 3
        assert peer.status(create_session(numbers[0])) == Status.STALE_CLIENTID
        assert peer.status(create_session(numbers[1])) == Status.OK


def test_clients_that_use_their_leases_are_not_made_to_go(tmp_path: Path) -> None:
    with exported(tmp_path, Config(clients_most=2)) as export:
        peer = Peer(export.program)
        sessions = [peer.session(b"%d" % n)[1] for n in range(2)]
        assert peer.status(exchange_id(b"2")) == Status.DELAY
        export.clock.now += 91
        assert peer.status(sequence(sessions[1])) == Status.OK
        peer.session(b"2")
        assert peer.status(sequence(sessions[0])) == Status.BADSESSION
        assert peer.status(sequence(sessions[1], 2)) == Status.OK


def test_facts_of_clients(export: Export, peer: Peer) -> None:
    number, _ = peer.session()
    Peer(export.program, Wire("192.0.2.9")).exchange()
    export.clock.now += 5
    (facts,) = export.server.clients.facts()
    assert facts.number == number and facts.owner == b"owner" and facts.sessions == 1
    assert facts.addresses == ("192.0.2.1", "192.0.2.9")
    assert facts.is_confirmed and not facts.is_courtesy and facts.renewed_ago_s == 5
