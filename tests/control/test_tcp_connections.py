# SPDX-License-Identifier: BSD-2-Clause
"""Connections over TCP: what is said of them, and that nobody touches them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.plant import Plant

from livedma.control.act.by_hand import ByHand
from livedma.control.act.controller import Controller
from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import NOT_MANAGED, Diagnosis, Limit
from livedma.control.diagnose.why import why
from livedma.control.observe.merge import merged
from livedma.control.policy.plan import Plan, Room, SetSlots
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import (
    Connection,
    Host,
    InsideSession,
    InsideTcp,
    Session,
    Snapshot,
    Times,
)

MS = 1_000_000
ID = "ab" * 16


def times(count: int, each_ns: int) -> Times:
    return Times(count, count * each_ns, each_ns, each_ns, each_ns)


def seen(
    at_s: float = 1.0,
    *,
    calls: int = 400,
    latency_ns: int = MS,
    waited_ns: int = 0,
    storage_ns: int = 100_000,
    busy: float = 0.1,
    slots: int = 64,
    asked: int = 64,
) -> Snapshot:
    """A tenth of a second of one connection over TCP with one session."""
    in_flight = calls * latency_ns // 100 // MS
    tcp = Connection(
        number=3,
        server="10.0.0.1",
        server_qpn=0,
        client="10.0.0.2",
        client_qpn=0,
        sessions=1,
        operations=calls,
        read_bytes=calls * 65536,
        written_bytes=0,
        latency=times(calls, latency_ns),
        in_flight=in_flight,
        credits_asked=0,
        credits_granted=0,
        rnr_naks=0,
        naks=0,
        retransmissions=0,
        unanswered=0,
        transport="tcp",
        client_port=812,
        client_name="alpha",
        tcp=InsideTcp(0, times(calls, waited_ns), times(calls, storage_ns)),
    )
    inside = InsideSession(slots, slots, min(slots, in_flight), 0, calls * storage_ns, asked)
    session = Session(
        ID, (3,), calls, calls * 65536, 0, times(calls, latency_ns - waited_ns), in_flight, inside
    )
    host = Host(None, 0, None, tcp_busy=busy)
    return Snapshot(at_s, 1e9 + at_s, 0.1, "server", (tcp,), (session,), host)


def diagnosed(**figures: object) -> Diagnosis:
    diagnostician = Diagnostician()
    for step in range(30):
        found = diagnostician.see(seen(step / 10, **figures))  # type: ignore[arg-type]
    return found[0]


def test_one_that_does_what_it_is_asked() -> None:
    found = diagnosed()
    assert (found.limit, found.is_degraded) == (Limit.NOTHING, False)
    assert "4,000 operations/s" in found.sentence and "credit" not in found.sentence
    assert "granted_credits" not in found.evidence and found.evidence["storage_ms"] == 0.1


def test_the_threads_of_tcp_are_busy() -> None:
    found = diagnosed(busy=1.2)
    assert (found.limit, found.is_degraded) == (Limit.CPU, True)
    assert "the threads that serve TCP" in found.sentence and "busy 100%" in found.sentence


def test_the_store_keeps_all_threads() -> None:
    found = diagnosed(latency_ns=40 * MS, waited_ns=32 * MS, storage_ns=7 * MS, calls=100)
    assert (found.limit, found.is_degraded) == (Limit.STORAGE, True)
    assert found.sentence.startswith("calls wait 80% of their 40 ms for a thread that serves TCP")


def test_calls_wait_for_threads_that_are_not_in_the_store() -> None:
    found = diagnosed(latency_ns=40 * MS, waited_ns=32 * MS, storage_ns=MS, calls=100, busy=0.7)
    assert found.limit is Limit.CPU and "wait 80%" in found.sentence


def test_a_session_is_short_of_slots() -> None:
    found = diagnosed(latency_ns=2 * MS, slots=8, asked=64)
    assert (found.limit, found.is_degraded) == (Limit.SLOTS, True)
    assert found.sentence == "1 session uses all slots all the time"


def test_why_names_the_client_and_says_that_its_memory_is_not_managed() -> None:
    snapshot = seen()
    found = why(snapshot, Diagnostician().see(snapshot))
    first, last = found.lines
    assert first.startswith("connection 3 of 10.0.0.2:812 (alpha) over TCP: fine: ")
    assert last.startswith(NOT_MANAGED)
    assert why(snapshot, (), "ab").lines[0].startswith("it is not slow: 4,000 operations/s")


def test_addresses_of_ipv6_and_queue_pairs() -> None:
    (tcp,) = seen().connections
    assert replace(tcp, client="fe80::1").client_words == "[fe80::1]:812 (alpha)"
    rdma = replace(tcp, client_qpn=17, client_port=None, client_name="")
    assert rdma.client_words == "10.0.0.2 qp 17"


class Eager:
    """A policy that has something for everybody."""

    name = "eager"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan:
        return Plan((SetSlots(ID, 1024),), "more")

    def relax(self, connection: Connection, demand: object) -> None:
        raise AssertionError("nothing of it can be relaxed")


class Observed:
    def __init__(self) -> None:
        self._at_s = 0.0

    def observe(self) -> Snapshot:
        self._at_s += 0.1
        return seen(self._at_s, busy=1.0)


def controller() -> Controller:
    return Controller(Observed(), Diagnostician, Plant(), Eager(), room=lambda: Room(None))


def test_policies_leave_it_as_it_is() -> None:
    made = controller()
    for _ in range(40):
        made.step()
    told = [one for one in made.events.after() if one.kind != "source"]
    assert [one.kind for one in told] == ["degraded", "why"]
    assert told[1].text.endswith(f"; {NOT_MANAGED}")


def test_by_hand_it_is_refused_with_the_reason() -> None:
    made = controller()
    made.step()
    for act in (ByHand(made).extend, ByHand(made).shrink):
        with pytest.raises(LivedmaError, match=f"connection 3 is over TCP: {NOT_MANAGED}"):
            act(3, 1 << 20)
    assert not [one for one in made.events.after() if one.kind == "hand"]


def test_the_wire_says_nothing_of_it() -> None:
    """A session that uses both transports is known whole by the server alone."""
    inside = seen()
    (tcp,), (session,) = inside.connections, inside.sessions
    rdma = replace(tcp, number=4, server_qpn=5, client_qpn=6, transport="rdma", tcp=None)
    both = replace(session, connections=(3, 4))
    inside = replace(inside, connections=(tcp, rdma), sessions=(both,))
    wire = replace(
        inside,
        connections=(replace(rdma, number=1, operations=7, client_port=None, client_name=""),),
        sessions=(replace(both, operations=7),),
    )
    found = merged(inside, wire)
    assert found.connections[0] is tcp and found.sessions == (both,)
    assert found.connections[1] == replace(rdma, operations=7)
