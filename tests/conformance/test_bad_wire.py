# SPDX-License-Identifier: BSD-2-Clause
"""Our device and the kernel's over a wire that loses, repeats, reorders and corrupts.

All data is right, each operation completes once, and where that cannot be, both hear why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scenarios
from endpoints import Attributes, Endpoint, Rxe, Work, digest_of, pattern
from ours import Ours
from scenarios import Link, linked

from livedma.lab.guest import Lab
from livedma.lab.wire import Rule, Wire, guest_wire
from livedma.wire.opcodes import OPCODES
from scale import IS_FULL
from wiretap import wiretap

pytestmark = pytest.mark.slow

Pair = tuple[Endpoint, Endpoint]
#: A tenth of a second until a request is repeated: guests need a part of it to answer.
ATTRIBUTES = Attributes(1024, timeout=15, retry_count=7, rnr_retry=7)
RELIABLE = [opcode for opcode in OPCODES.values() if opcode.transport == "RC"]


def read(link: Link) -> None:
    """A kernel does not answer a READ of nothing a second time: these read something."""
    scenarios.read(link, smallest=1)


SCENARIOS = [
    scenarios.send,
    scenarios.write,
    read,
    scenarios.atomics,
    scenarios.pipelined_writes,
    scenarios.pipelined_reads,
]


@pytest.fixture(params=["ipv4", "ipv6", *(["ipv4-udp"] if IS_FULL else [])])
def place(request: pytest.FixtureRequest) -> str:
    """CI has time for either way to send and either version, but not for each with each."""
    return str(request.param)


@pytest.fixture(scope="module")
def wire_of_a(guests: Lab, kernel: Rxe) -> Iterator[Wire]:
    with guest_wire(guests, kernel.guest, seed=7) as wire:
        yield wire


@pytest.fixture
def wire(wire_of_a: Wire) -> Iterator[Wire]:
    """A wire that is good again afterwards, and that kept up."""
    yield wire_of_a
    wire_of_a.set_rules()
    assert wire_of_a.lost() == 0


def done(wire: Wire, before: Counter[str]) -> Counter[str]:
    """What was done to packets of both directions since."""
    now = wire.counts("near") + wire.counts("far")
    now.subtract(before)
    return now


def is_asked_by_a_kernel(pair: Pair) -> bool:
    """A kernel that gets an ACK among the responses of a READ ends the connection, in silence.

    Two kernels do that to each other, too. So READs to which a kernel waits for responses are not
    mixed with what is acknowledged, and ACKs to it are on time.
    """
    return isinstance(pair[0], Rxe)


def may_be_late(pair: Pair) -> list[Rule]:
    """Which packets may overtake each other."""
    if not is_asked_by_a_kernel(pair):
        return [Rule("reorder", 0.05, by=2)]
    late = [Rule("reorder", 0.05, to="near", by=2)]
    return late + [
        Rule("reorder", 0.05, to="far", opcode=opcode.name, by=2)
        for opcode in RELIABLE
        if "READ_RESPONSE" in opcode.name
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)
def test_all_kinds_at_once(
    wire: Wire, pair: Pair, version: int, scenario: Callable[[Link], None]
) -> None:
    before = wire.counts("near") + wire.counts("far")
    wire.set_rules(
        Rule("drop", 0.05),
        Rule("duplicate", 0.05),
        Rule("corrupt", 0.03, part="header"),
        Rule("corrupt", 0.03, part="payload"),
        *may_be_late(pair),
    )
    with linked(*pair, "RC", version, ATTRIBUTES) as link:
        # Again until something has happened: the atomics are a few packets only.
        while (did := done(wire, before)).total() == did["seen"]:
            scenario(link)
        link.a.no_more()
        link.b.no_more()


def test_everything_of_ours_at_once(wire: Wire, ours: Ours, kernel: Rxe, version: int) -> None:
    wire.set_rules(
        Rule("drop", 0.05), Rule("duplicate", 0.05), Rule("corrupt", 0.05), Rule("reorder", 0.05)
    )
    with linked(ours, kernel, "RC", version, ATTRIBUTES) as link:
        for _ in range(3):
            scenarios.pipelined(link)
        link.a.no_more()
        link.b.no_more()


@pytest.mark.parametrize("action", ["drop", "duplicate", "corrupt", "reorder", "delay"])
def test_one_of_each_opcode(wire: Wire, pair: Pair, version: int, action: str) -> None:
    """The second packet of each opcode: first, middle, last and only ones, ACKs and responses."""
    part = {"part": "header"} if action == "corrupt" else {}
    is_late = action in ("reorder", "delay")
    targets = [
        opcode.name
        for opcode in RELIABLE
        if not (is_late and opcode.name.endswith("ACKNOWLEDGE") and is_asked_by_a_kernel(pair))
    ]
    before = wire.counts("near") + wire.counts("far")
    wire.set_rules(*(Rule(action, opcode=name, skip=1, times=1, **part) for name in targets))
    with linked(*pair, "RC", version, ATTRIBUTES) as link:
        for scenario in SCENARIOS:
            scenario(link)
        link.a.no_more()
        link.b.no_more()
    did = done(wire, before)
    # SENDs and WRITEs with and without immediate, READs, their responses, atomics, ACKs.
    assert did[action] + is_late * did["delay"] >= 15, did


def test_nothing_comes_through(wire: Wire, pair: Pair, version: int) -> None:
    attributes = Attributes(1024, timeout=12, retry_count=2)
    with linked(*pair, "RC", version, attributes) as link:
        link.b.qp.receive([(1, [link.b.at(0, 64)]), (2, [link.b.at(0, 64)])])
        wire.set_rules(Rule("drop"))
        link.a.qp.send([Work(n, "SEND", [link.a.at(0, 64)]) for n in (1, 2)])
        assert [d.status for d in link.sent(2)] == ["RETRY_EXC_ERR", "WR_FLUSH_ERR"]
        wire.set_rules()
        link.a.no_more()
        link.b.no_more()
        assert link.b.qp.state == "RTS"


def test_no_answer_comes_through(wire: Wire, pair: Pair, version: int) -> None:
    """The peer has it, once, and the requester cannot know."""
    attributes = Attributes(1024, timeout=12, retry_count=2)
    with linked(*pair, "RC", version, attributes) as link:
        link.a.memory.fill(0, 3000, 4)
        link.b.qp.receive([(n, [link.b.at(4096 * n, 4096)]) for n in (0, 1)])
        wire.set_rules(Rule("drop", opcode="RC_ACKNOWLEDGE"))
        link.a.qp.send([Work(1, "SEND", [link.a.at(0, 3000)])])
        assert [d.status for d in link.sent()] == ["RETRY_EXC_ERR"]
        wire.set_rules()
        received = link.received()
        assert [(d.wr_id, d.status, d.length) for d in received] == [(0, "SUCCESS", 3000)]
        assert link.b.memory.digest(0, 3000) == digest_of(pattern(3000, 4))
        link.b.no_more()


def test_a_receive_comes_late(wire: Wire, pair: Pair, version: int) -> None:
    """RNR NAKs, one of them lost, until there is a Receive."""
    with linked(*pair, "RC", version, ATTRIBUTES) as link:
        before = wire.counts("near") + wire.counts("far")
        wire.set_rules(Rule("drop", opcode="RC_ACKNOWLEDGE", skip=1, times=1))
        link.a.memory.fill(0, 2000, 6)
        link.a.qp.send([Work(1, "SEND", [link.a.at(0, 2000)])])
        while done(wire, before)["drop"] == 0:
            assert link.a.qp.completions("send", 1, 0.05) == []
        link.b.qp.receive([(2, [link.b.at(0, 2000)])])
        assert [(d.wr_id, d.status) for d in link.sent()] == [(1, "SUCCESS")]
        assert [(d.wr_id, d.status) for d in link.received()] == [(2, "SUCCESS")]
        assert link.b.memory.digest(0, 2000) == digest_of(pattern(2000, 6))


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_unreliable_messages_are_whole_or_missing(
    wire: Wire, pair: Pair, version: int, kind: str
) -> None:
    count = 30
    certain = Rule("drop", skip=7, times=1)  # chance may spare all of them
    wire.set_rules(certain, Rule("drop", 0.1), Rule("corrupt", 0.1), Rule("reorder", 0.05))
    with linked(*pair, kind, version, ATTRIBUTES) as link:
        arrived = scenarios.unreliable_messages(link, count)
        assert len(arrived) == len(set(arrived))
        assert 0 < len(arrived) < count
        wire.set_rules()


def test_a_capture_of_it_decodes(
    bpf: None, guests: Lab, wire: Wire, pair: Pair, version: int, ours: Ours, tmp_path: Path
) -> None:
    """Behind the wire, at the guest: whole packets, and those corrupt that were made so."""
    before = wire.counts("far")
    # What the guest has to say twice: it asks with WRITEs, or answers READs; chance need not do it.
    certain = [
        Rule("drop", opcode=opcode, to="near", times=1)
        for opcode in ("RC_RDMA_WRITE_FIRST", "RC_RDMA_READ_RESPONSE_FIRST")
    ]
    by_chance = [Rule("drop", 0.05), Rule("duplicate", 0.05), Rule("corrupt", 0.05, to="far")]
    with wiretap(guests, guests.a, tmp_path / "bad.pcapng") as tap:
        wire.set_rules(*certain, *by_chance)
        for scenario in (scenarios.pipelined_writes, scenarios.pipelined_reads):
            with linked(*pair, "RC", version, ATTRIBUTES) as link:
                scenario(link)
        wire.set_rules()
    corrupted = wire.counts("far")["corrupt"] - before["corrupt"]
    wrong = [packet for packet in tap.packets if not packet["icrc_ok"]]
    assert len(wrong) == tap.summary["icrc_errors"] == corrupted
    assert tap.summary["packets"] == len(tap.packets)
    assert tap.summary["errors"] == tap.summary["not_roce"] == 0
    assert sum(connection["retransmitted"] for connection in tap.connections()) > 0
    assert {packet["src"] for packet in tap.packets} == {one.address(version) for one in pair}
    assert ours.device.closed is False
