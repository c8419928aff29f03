# SPDX-License-Identifier: BSD-2-Clause
"""What a bad wire does, without a wire: each fate, exactly as often as the rules say."""

from __future__ import annotations

from collections import Counter

import pytest
from psn_frames import ADDRESSES, frame, psns

from livedma.lab.impairment import Impairment, Rule, parse
from livedma.wire import decode
from livedma.wire.encode import encode, ethernet

MS = 1_000_000


def through(way: Impairment, frames: list[bytes]) -> list[bytes]:
    """All frames at once, then all that is held back."""
    passed = [out for one in frames for out in way.take(one, 0)]
    return passed + way.due(10_000 * MS)


@pytest.mark.parametrize("version", [4, 6])
def test_without_rules_all_pass(version: int) -> None:
    way = Impairment("far")
    frames = [frame(psn, version=version) for psn in range(10)]
    assert through(way, frames) == frames
    assert way.counts == {"seen": 10}


@pytest.mark.parametrize(
    "data",
    [
        bytes(12) + b"\x08\x06" + bytes(46),  # ARP
        frame(1).replace((4791).to_bytes(2, "big"), (4790).to_bytes(2, "big"), 1),
        frame(1)[:23] + b"\x06" + frame(1)[24:],  # TCP
        frame(1)[:50],  # cut short
        ethernet(encode("RC_SEND_ONLY", payload=b"", psn=1, **ADDRESSES[4]), vlan=(7,)),
        b"",
    ],
)
def test_what_is_no_roce_passes(data: bytes) -> None:
    way = Impairment("far", [Rule("drop")])
    assert way.take(data, 0) == [data]
    assert not way.counts


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("drop", skip=2, times=1), [0, 1, 3, 4, 5]),
        (Rule("drop", times=2), [2, 3, 4, 5]),
        (Rule("duplicate", skip=1, times=1), [0, 1, 1, 2, 3, 4, 5]),
        (Rule("reorder", skip=1, times=1), [0, 2, 1, 3, 4, 5]),
        (Rule("reorder", skip=1, times=1, by=3), [0, 2, 3, 4, 1, 5]),
        (Rule("reorder", times=2, by=2), [2, 3, 0, 1, 4, 5]),
        (Rule("delay", skip=1, times=1), [0, 2, 3, 4, 5, 1]),
    ],
)
def test_each_fate(version: int, rule: Rule, expected: list[int]) -> None:
    way = Impairment("far", [rule])
    frames = [frame(psn, version=version) for psn in range(6)]
    out = through(way, frames)
    assert psns(out) == expected
    assert set(out) <= set(frames)
    assert way.counts == {"seen": 6, rule.action: rule.times}


def test_a_rule_for_one_direction() -> None:
    rules = [Rule("drop", to="near")]
    assert len(through(Impairment("far", rules), [frame(1)])) == 1
    assert len(through(Impairment("near", rules), [frame(1)])) == 0


def test_a_rule_for_one_opcode() -> None:
    kinds = ["RC_SEND_FIRST", "RC_SEND_MIDDLE", "RC_SEND_MIDDLE", "RC_SEND_MIDDLE", "RC_SEND_LAST"]
    way = Impairment("far", [Rule("drop", opcode="RC_SEND_MIDDLE", skip=1, times=1)])
    out = through(way, [frame(psn, kind, size=256) for psn, kind in enumerate(kinds)])
    assert psns(out) == [0, 1, 3, 4]


def test_the_first_rule_that_takes_a_packet_decides() -> None:
    way = Impairment("far", [Rule("drop", times=1), Rule("duplicate", times=1)])
    assert psns(through(way, [frame(psn) for psn in range(3)])) == [1, 1, 2]
    assert way.counts == {"seen": 3, "drop": 1, "duplicate": 1}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("part", ["payload", "header", "icrc"])
def test_one_bit_is_wrong_and_the_icrc_tells(version: int, part: str) -> None:
    way = Impairment("far", [Rule("corrupt", part=part)])
    frames = [frame(psn, version=version) for psn in range(200)]
    positions: Counter[int] = Counter()
    for before, after in zip(frames, through(way, frames), strict=True):
        differing = [i for i in range(len(before)) if before[i] != after[i]]
        assert len(differing) == 1 and len(before) == len(after)
        assert (before[differing[0]] ^ after[differing[0]]).bit_count() == 1
        assert not decode(after).icrc_ok
        positions[differing[0]] += 1
    bth = parse(frames[0]).bth  # type: ignore[union-attr]
    expected = {
        "header": {*range(bth, bth + 12)} - {bth + 4},
        "payload": {*range(bth + 12, bth + 76)},
        "icrc": {*range(bth + 76, bth + 80)},
    }[part]
    assert set(positions) <= expected
    assert len(positions) > len(expected) // 2


def test_what_has_no_payload_keeps_it() -> None:
    way = Impairment("far", [Rule("corrupt", part="payload")])
    acks = [frame(1, "RC_ACKNOWLEDGE", size=0)]
    assert through(way, acks) == acks
    assert way.counts == {"seen": 1}


def test_chance_follows_the_seed() -> None:
    rules = [Rule("drop", 0.1), Rule("duplicate", 0.1), Rule("reorder", 0.1), Rule("corrupt", 0.1)]
    frames = [frame(psn) for psn in range(1000)]
    runs = []
    for seed in (1, 1, 2):
        way = Impairment("far", rules, seed)
        runs.append((through(way, frames), way.counts))
    assert runs[0] == runs[1] != runs[2]
    out, counts = runs[0]
    assert len(out) == 1000 - counts["drop"] + counts["duplicate"]
    for action in ("drop", "duplicate", "reorder", "corrupt"):
        assert 50 < counts[action] < 150


def test_a_packet_that_nobody_overtakes_goes_on() -> None:
    way = Impairment("far", [Rule("reorder", times=1)])
    assert way.take(frame(1), 5 * MS) == []
    assert way.next_due_ns == 25 * MS
    assert way.due(24 * MS) == []
    assert psns(way.due(25 * MS)) == [1]
    assert way.next_due_ns is None
    assert way.counts == {"seen": 1, "delay": 1}


def test_delayed_packets_come_by_their_time() -> None:
    rules = [Rule("delay", times=1, delay_s=0.03), Rule("delay", times=1, delay_s=0.01)]
    way = Impairment("far", rules)
    assert [way.take(frame(psn), 0) for psn in (1, 2)] == [[], []]
    assert psns(way.due(10 * MS)) == [2]
    assert psns(way.due(30 * MS)) == [1]


def test_new_rules_do_not_lose_what_is_held() -> None:
    way = Impairment("far", [Rule("delay")])
    assert way.take(frame(1), 0) == []
    way.set_rules([])
    assert psns(through(way, [frame(2)])) == [2, 1]


def test_only_so_many_are_held() -> None:
    way = Impairment("far", [Rule("delay")])
    out = [one for psn in range(1100) for one in way.take(frame(psn), 0)]
    assert psns(out) == list(range(1024, 1100))
    assert len(way.due(1000 * MS)) == 1024


@pytest.mark.parametrize("wrong", [{"action": "lose"}, {"to": "left"}, {"part": "tail"}])
def test_there_is_no_such_rule(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="there is no such rule"):
        Rule(**{"action": "drop", **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="there is no opcode 'RC_JUMP'"):
        Rule("drop", opcode="RC_JUMP")
