# SPDX-License-Identifier: BSD-2-Clause
"""Nothing that arrives makes the connection manager raise, hoard or let go of a connection."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, STRANGER, World
from hypothesis import given, settings
from hypothesis import strategies as st

from livedma.rdma.cm.connection import State
from livedma.rdma.cm.engine import Engine
from livedma.wire import cm

HEAD = bytes((1, 7, 2, 3))
attributes = st.sampled_from(sorted(cm.ATTRIBUTES))
numbers = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))


def mad(attribute: int, body: bytes) -> bytes:
    head = HEAD + bytes(12) + attribute.to_bytes(2, "big") + bytes(6)
    return (head + body).ljust(256, b"\0")[:256]


junk = st.one_of(
    st.binary(max_size=300),
    st.builds(mad, attributes, st.binary(max_size=232)),
    st.builds(lambda attribute, body, cut: mad(attribute, body)[:cut], attributes,
              st.binary(max_size=232), st.integers(0, 256)),
)  # fmt: skip


def busy() -> World:
    """A server with a connection in each state that a peer's message can meet."""
    world = World()
    world.established(qpn=17)
    world.accepted(qpn=18)
    world.request(qpn=19)
    mine, _ = world.established(qpn=20)
    world.client.disconnect(mine, world.now)
    world.server.listen(PORT, "UDP")
    world.client.resolve(SERVER, PORT, world.now)
    world.run(0.01)
    return world


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(junk, max_size=20), st.booleans())
def test_junk_never_raises(mads, is_known):
    world = busy()
    for number, bytes_ in enumerate(mads):
        for engine in (world.client, world.server):
            engine.receive(bytes_, CLIENT if is_known else STRANGER, world.now + number)
            engine.transmits()
    world.run(1)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "attribute": st.sampled_from(sorted(set(cm.ATTRIBUTES.values()))),
                "local": st.integers(0, 9),
                "remote": st.integers(0, 9),
                "message": st.integers(0, 3),
                "reason": st.integers(0, 40),
                "number": numbers,
                "from": st.sampled_from([CLIENT, SERVER, STRANGER]),
            }
        ),
        max_size=30,
    )
)
def test_messages_about_real_connections_never_raise(attacks):
    world = busy()
    ids = [c.local_id for engine in world.engines.values() for c in engine.connections]
    ids += [0, 1, 2]
    for attack in attacks:
        message = {
            "attribute": attack["attribute"],
            "local_comm_id": ids[attack["local"] % len(ids)],
            "remote_comm_id": ids[attack["remote"] % len(ids)],
            "request_id": ids[attack["local"] % len(ids)],
            "message": str(attack["message"]),
            "reason": attack["reason"],
            "qpn": attack["number"] % 32,
            "remote_qpn": 15 + attack["number"] % 10,
            "service_id": hex(0x01060000 | PORT),
            "path_mtu": 1024,
            "service_timeout": attack["number"] % 32,
        }
        if attack["attribute"] in ("REQ", "SIDR_REQ"):
            message["ip_cm"] = {"src": CLIENT, "dst": SERVER, "src_port": 1}
        for engine in (world.client, world.server):
            engine.receive(cm.encode(message), attack["from"], world.now)
    world.run(1)
    for engine in world.engines.values():
        for connection in engine.connections:
            engine.disconnect(connection, world.now)
        for request in list(engine._sidr._theirs.values()):
            if request.answer is None:
                engine.answer(request, world.now)
    world.run()
    world.assert_nothing_left()


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(st.tuples(attributes, st.binary(max_size=232)), max_size=30))
def test_a_stranger_changes_no_connection(mads):
    world = busy()
    before = [
        (c.local_id, c.state, c.remote_id, c.remote_qpn, c.deadline)
        for engine in world.engines.values()
        for c in engine.connections
    ]
    for attribute, body in mads:
        for engine in (world.client, world.server):
            engine.receive(mad(attribute, body), STRANGER, world.now)
    after = [
        (c.local_id, c.state, c.remote_id, c.remote_qpn, c.deadline)
        for engine in world.engines.values()
        for c in engine.connections
        if c.peer != STRANGER
    ]
    assert before == after


def test_what_is_not_understood_is_counted():
    engine = Engine(SERVER)
    for wrong in (b"", bytes(256), b"\1\7\2\3", mad(0x99, b""), b"\1\7\1\3" + bytes(252)):
        engine.receive(wrong, CLIENT, 0.0)
    assert engine.counters.malformed == 5
    engine.receive(mad(0x19, b""), CLIENT, 0.0)
    assert engine.counters.unsupported == 1
    assert not engine.transmits() and not engine.events()


def test_an_ip_header_of_another_version_is_malformed():
    engine = Engine(SERVER)
    engine.listen(PORT)
    peer = Engine(CLIENT, source=random.Random(1))
    peer.connect(SERVER, PORT, 17, 0.0)
    request = bytearray(peer.transmits()[0][0])
    for at, value in ((164, 0x10), (165, 0x50)):
        changed = request[:]
        changed[at] = value
        engine.receive(bytes(changed), CLIENT, 0.0)
    assert engine.counters.malformed == 2 and engine.is_idle
    engine.receive(bytes(request), CLIENT, 0.0)
    assert engine.connections[0].state is State.REQ_RECEIVED


def test_no_message_is_answered_by_more_than_one():
    """Nobody can use this side to flood another."""
    world = busy()
    source = random.Random(5)
    for _ in range(2000):
        attribute = source.choice(sorted(cm.ATTRIBUTES))
        world.server.receive(mad(attribute, source.randbytes(232)), STRANGER, world.now)
        assert len(world.server.transmits()) <= 1
