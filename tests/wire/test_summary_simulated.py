"""The summary against a simulated connection, of which the truth is known."""

from __future__ import annotations

import random
import struct

import pytest
import roce_frames as roce
from hypothesis import given, settings
from hypothesis import strategies as st
from lossy_wire import MTU, Connection, Place
from roce_frames import Capture, Packet

from livedma._native.flow import FlowTable
from livedma._native.wire import Batch
from livedma.wire.summary import summarize

messages = st.lists(
    st.tuples(st.sampled_from(["SEND", "WRITE", "READ", "FETCH_ADD"]), st.integers(1, 5)),
    min_size=1,
    max_size=12,
)
drops = st.sets(st.integers(1, 80), max_size=6)
psns = st.one_of(st.integers(0, 0xFFFFFF), st.integers(0xFFFFF0, 0xFFFFFF))


def expected_messages(connection: Connection) -> dict[str, int]:
    counts: dict[str, int] = {}
    for operation, _ in connection.messages:
        counts[operation] = counts.get(operation, 0) + 1
    return counts


def check(found: dict, truth: Connection) -> None:
    assert found["lost"] == truth.lost
    assert found["retransmitted"] == truth.retransmitted
    assert found["messages"] == expected_messages(truth)
    assert found["naks"] == ({"PSN sequence error": truth.naks} if truth.naks else {})
    assert found["rnr_naks"] == truth.rnr_naks
    assert found["duplicates"] <= truth.received_again + truth.lost
    payload = sum(n * MTU for operation, n in truth.messages if operation != "FETCH_ADD")
    assert sum(found["payload_bytes"].values()) == payload
    assert found["not_captured"] == 0


@settings(max_examples=3000, deadline=None)
@given(messages, drops, st.sampled_from(Place), psns)
def test_losses_are_those_of_the_wire(messages, drops, place, first_psn):
    capture = Capture()
    truth = Connection(messages, drops, place, capture, first_psn)
    (found,) = capture.connections()
    check(found, truth)
    if not truth.lost and not truth.retransmitted:
        assert found["verdict"] == "nothing lost"


@settings(max_examples=400, deadline=None)
@given(messages, drops, psns, st.integers(1, 3))
def test_receiver_not_ready_is_no_loss(messages, drops, first_psn, not_ready):
    capture = Capture()
    truth = Connection(messages, drops, Place.MIDDLE, capture, first_psn, not_ready=not_ready)
    (found,) = capture.connections()
    check(found, truth)
