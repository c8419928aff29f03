# SPDX-License-Identifier: BSD-2-Clause
"""Why is this session slow?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from storage_model import Link, Model

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.diagnose.room import UNKNOWN, SessionRoom
from livedma.control.diagnose.why import Why, why
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Snapshot


def made(*, credits_: int = 64, buffers: int = 56) -> tuple[Model, Link]:
    model = Model()
    model.store_s, model.cpu_s = 0.02, 1e-5
    return model, model.add_link(credits_=credits_, buffers=buffers, size=65536)


def seen(model: Model) -> tuple[Snapshot, tuple[Diagnosis, ...]]:
    diagnostician = Diagnostician()
    for _ in range(20):
        snapshot = model.run(0.1)
        diagnoses = diagnostician.see(snapshot)
    return snapshot, diagnoses


def asked(model: Model, session: str | None) -> Why:
    return why(*seen(model), session)


def test_its_connection_is_short_of_memory() -> None:
    model, link = made()
    sessions = [link.add_session(3) for _ in range(64)]
    found = asked(model, sessions[5].id)
    assert (found.session, found.is_slow, found.limit) == (sessions[5].id, True, "DMA memory")
    assert found.lines[0].startswith("its connection 1 is slow: requests wait ")
    assert any("in the store" in line for line in found.lines)
    assert found.evidence["storage_ms"] == pytest.approx(20, rel=0.01)


def test_it_is_short_of_slots_itself() -> None:
    model, link = made()
    for _ in range(8):
        link.add_session(4)
    short = link.add_session(16, slots=2, asked=16)
    found = asked(model, short.id)
    assert (found.is_slow, found.limit) == (True, "slots")
    assert "all its 2 slots" in found.lines[0]
    other = asked(model, link.sessions[0].id)
    assert (other.is_slow, other.limit) == (False, "nothing")


def test_it_is_not_slow() -> None:
    model, link = made()
    session = link.add_session(2)
    found = asked(model, session.id)
    assert (found.is_slow, found.limit) == (False, "nothing")
    assert found.lines[0].startswith("it is not slow: 100 operations/s, 6.6 MB/s, in 20.0 ms each")


def test_connections_have_room_for_more_sessions() -> None:
    model, link = made()
    for _ in range(10):
        link.add_session(3)
    snapshot, (diagnosis,) = seen(model)
    words = "room for 4 to 7 more sessions like these (40 of 56 buffers at the busiest)"
    full = "no room for more sessions: it is slow already; 50 to 60 at the window's end"
    roomy = replace(diagnosis, room=SessionRoom(4, 7, 50, 60, words, full))
    found = why(snapshot, (roomy,))
    assert found.lines[1] == f"connection 1: {words}"
    assert found.evidence["room_least_sessions"] == 4
    assert found.evidence["window_room_most_sessions"] == 60
    slow = why(snapshot, (replace(roomy, is_degraded=True),))
    assert slow.lines[1] == f"connection 1: {full}"
    unknown = why(snapshot, (replace(roomy, room=SessionRoom(None, None, None, None, UNKNOWN)),))
    assert unknown.lines[1] == f"connection 1: {UNKNOWN}"
    assert "room_least_sessions" not in unknown.evidence
    assert len(why(snapshot, (diagnosis,)).lines) == 1


def test_nothing_is_asked_of_it() -> None:
    model, link = made()
    session = link.add_session(1)
    session.is_active = False
    assert asked(model, session.id).lines == ("it is not slow: nothing is asked of it",)


def test_others_are_faster() -> None:
    model, link = made()
    for _ in range(4):
        link.add_session(1)
    snapshot, diagnoses = seen(model)
    first, *others = snapshot.sessions
    slower = replace(first, latency=replace(first.latency, sum_ns=3 * first.latency.sum_ns))
    changed = replace(snapshot, sessions=(slower, *others))
    assert why(changed, diagnoses, first.id).lines[-1] == (
        "others on its connection take 20.0 ms for a call"
    )


def test_connections_are_answered_for_without_a_session() -> None:
    model, link = made()
    for _ in range(64):
        link.add_session(3)
    other = model.add_link(credits_=64, buffers=56, size=65536)
    other.add_session(1)
    found = asked(model, None)
    assert (found.session, found.is_slow, found.limit) == (None, True, "DMA memory")
    first, second = found.lines
    assert first.startswith(
        "connection 1 of 10.0.0.2 qp 3: slow, limited by DMA memory: requests wait"
    )
    assert second.startswith("connection 2 of 10.0.0.2 qp 5: fine: it does all that is asked of it")


def test_there_is_no_connection() -> None:
    assert asked(Model(), None).lines == ("no client is connected",)


def test_the_beginning_of_an_id_is_enough_if_there_is_one_such_session() -> None:
    model, link = made()
    first, second = link.add_session(1), link.add_session(1)
    view = seen(model)
    assert first.id[:-1] == second.id[:-1]
    assert why(*view, first.id.upper()).session == first.id
    with pytest.raises(LivedmaError, match="2 sessions begin with 0000: write more"):
        why(*view, "0000")
    with pytest.raises(LivedmaError, match="no session abc"):
        why(*view, "abc")
    with pytest.raises(LivedmaError, match="named by its id"):
        why(*view, "")


def test_json_can_say_it() -> None:
    model, link = made()
    link.add_session(1)
    found = asked(model, None).as_json()
    assert sorted(found) == ["evidence", "is_slow", "limit", "lines", "session"]


def test_means_of_different_things_have_numbers_of_their_own() -> None:
    """Calls without an access to the store make the mean of all calls the shorter one."""
    model, link = made()
    link.add_session(2)
    snapshot, _ = seen(model)
    (one,) = snapshot.connections
    assert one.inside is not None
    calls = one.operations + one.inside.storage.count // 10  # every tenth is a GETATTR
    mixed = replace(one, operations=calls, latency=replace(one.latency, count=calls))
    diagnostician = Diagnostician()
    for step in range(5):
        at_s = snapshot.at_s + step / 10
        (found,) = diagnostician.see(replace(snapshot, at_s=at_s, connections=(mixed,)))
    per_s = 10 * one.inside.storage.count
    assert f", {per_s:,.0f} accesses/s to the store in 20" in found.sentence
    assert "(storage" not in found.sentence


def test_a_part_of_a_call_is_of_the_same_calls() -> None:
    """The wire has seen other calls than the server, whose times these are."""
    model, link = made()
    link.add_session(2)
    snapshot, diagnoses = seen(model)
    (session,) = snapshot.sessions
    assert session.inside is not None
    inside = replace(session.inside, calls=10, calls_ns=1_000_000_000, storage_ns=900_000_000)
    session = replace(session, operations=12, inside=inside)
    assert session.storage_ns == 90_000_000
    found = why(replace(snapshot, sessions=(session,)), diagnoses, session.id)
    assert "a call takes 100 ms, 90 ms of it in the store" in found.lines


def test_pieces_that_are_in_the_store_at_the_same_time_are_no_part_of_a_call() -> None:
    model, link = made()
    link.add_session(2)
    snapshot, diagnoses = seen(model)
    (session,) = snapshot.sessions
    assert session.inside is not None
    inside = replace(session.inside, calls=10, calls_ns=1_000_000_000, storage_ns=8_000_000_000)
    session = replace(session, inside=inside)
    found = why(replace(snapshot, sessions=(session,)), diagnoses, session.id)
    assert (
        "a call takes 100 ms, and its pieces, several at once, 800 ms together in the store"
        in found.lines
    )
