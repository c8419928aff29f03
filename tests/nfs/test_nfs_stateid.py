# SPDX-License-Identifier: BSD-2-Clause
"""Stateids: the special ones, the current one, and each way to be wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.state.states import States, Versioned
from livedma.nfs.stateid import ANONYMOUS, BYPASS, CURRENT, INVALID, Stateid
from livedma.rpc.xdr import Decoder, Encoder


class Thing(Versioned):
    def __init__(self, other: bytes, client_number: int) -> None:
        super().__init__(other)
        self.client_number = client_number


def holding(current: Stateid | None) -> Context:
    """A COMPOUND of which only the current stateid matters."""
    unused: Any = None
    return Context(unused, unused, unused, minor=1, current_stateid=current)


@given(st.builds(Stateid, st.integers(0, 0xFFFFFFFF), st.binary(min_size=12, max_size=12)))
def test_round_trip(stateid: Stateid) -> None:
    out = Encoder()
    stateid.encode(out)
    assert len(out) == 16
    assert Stateid.decode(Decoder(bytes(out))) == stateid


def test_special_ones_on_the_wire() -> None:
    wire = {}
    for stateid in (ANONYMOUS, BYPASS, CURRENT, INVALID):
        out = Encoder()
        stateid.encode(out)
        wire[stateid] = bytes(out)
        assert stateid.is_special
    assert wire[ANONYMOUS] == bytes(16)
    assert wire[BYPASS] == b"\xff" * 16
    assert wire[CURRENT] == b"\0\0\0\1" + bytes(12)
    assert wire[INVALID] == b"\xff" * 4 + bytes(12)


def test_current_stands_for_the_latest_version() -> None:
    ctx = holding(Stateid(7, b"x" * 12))
    assert ctx.resolve(CURRENT) == Stateid(0, b"x" * 12)
    assert ctx.resolve(CURRENT, keep_seqid=True) == Stateid(7, b"x" * 12)
    assert ctx.resolve(Stateid(3, b"y" * 12)) == Stateid(3, b"y" * 12)


def test_current_may_be_special_itself() -> None:
    assert holding(ANONYMOUS).resolve(CURRENT) == ANONYMOUS
    assert holding(BYPASS).resolve(CURRENT) == BYPASS


def test_there_has_to_be_a_current_one() -> None:
    with pytest.raises(NfsError) as failed:
        holding(None).resolve(CURRENT)
    assert failed.value.status == Status.BAD_STATEID


@pytest.fixture
def states() -> States[Thing]:
    return States(boot=5)


@pytest.fixture
def thing(states: States[Thing]) -> Thing:
    thing = Thing(states.new_name(), 1)
    thing.seqid = 3
    states.add(thing)
    return thing


def refused(states: States[Thing], stateid: Stateid, client: int = 1) -> Status:
    with pytest.raises(NfsError) as failed:
        states.find(stateid, client)
    return failed.value.status


def test_found_by_its_version_or_as_the_latest(states: States[Thing], thing: Thing) -> None:
    assert states.find(Stateid(3, thing.other), 1) is thing
    assert states.find(Stateid(0, thing.other), 1) is thing


def test_wrong_versions(states: States[Thing], thing: Thing) -> None:
    assert refused(states, Stateid(2, thing.other)) == Status.OLD_STATEID
    assert refused(states, Stateid(4, thing.other)) == Status.BAD_STATEID


def test_versions_wrap_and_leave_out_zero(states: States[Thing], thing: Thing) -> None:
    thing.seqid = 0xFFFFFFFF
    thing.change()
    assert thing.seqid == 1
    assert refused(states, Stateid(0xFFFFFFFF, thing.other)) == Status.OLD_STATEID
    assert refused(states, Stateid(2, thing.other)) == Status.BAD_STATEID


def test_another_client_finds_nothing(states: States[Thing], thing: Thing) -> None:
    assert refused(states, thing.stateid, client=2) == Status.BAD_STATEID


def test_another_instance_of_the_server(states: States[Thing], thing: Thing) -> None:
    assert thing.other[:4] == b"\0\0\0\5"
    assert refused(states, Stateid(3, b"\0\0\0\4" + thing.other[4:])) == Status.BAD_STATEID


def test_what_was_removed_is_not_found(states: States[Thing], thing: Thing) -> None:
    states.remove(thing)
    assert refused(states, thing.stateid) == Status.BAD_STATEID
    assert len(states) == 0


@pytest.mark.parametrize(
    "stateid",
    [ANONYMOUS, BYPASS, CURRENT, INVALID, Stateid(9, bytes(12)), Stateid(1, b"\xff" * 12)],
)
def test_special_ones_name_no_state(states: States[Thing], stateid: Stateid) -> None:
    assert refused(states, stateid) == Status.BAD_STATEID


def test_names_are_not_alike(states: States[Thing]) -> None:
    assert len({states.new_name() for _ in range(1000)}) == 1000
