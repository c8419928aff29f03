# SPDX-License-Identifier: BSD-2-Clause
"""A hostile peer: no byte changes outside of what it may write, and others are not disturbed."""

import random

import pytest

from engines import ADDRESSES, connect
from livedma._native.rdma import ProtectionDomain
from livedma._native.wire import encode, opcode_table

TRANSPORTS = {"RC": 0, "UC": 1, "UD": 3}
# All that a transport has, and more of what writes.
CODES = {
    kind: [code for code, _, transport, _, _, _ in opcode_table() if transport == number]
    + [code for code in (0x0A, 0x0B, 0x13, 0x14, 0x2A, 0x2B) if code >> 5 == number] * 4
    for kind, number in TRANSPORTS.items()
}
GUARD = 4096
SIZE = 8192
RECEIVE_AT = 4096


def hostile(rng: random.Random, kind: str, qp: int, keys: list[int], va: int, psn: int) -> bytes:
    """A well-formed packet with a good ICRC and numbers near those that mean something."""
    key = rng.choice([*keys, keys[0] ^ 1 << rng.randrange(32), rng.randrange(1 << 32)])
    edge = rng.choice([0, 0, GUARD, SIZE, GUARD + SIZE, -1, 2**40])
    near = rng.choice([rng.randrange(-300, 300), rng.randrange(-2, 3) - rng.choice([0, 1, 8, 256])])
    address = (va + edge + near) % 2**64 & ~rng.choice([0, 7])
    length = rng.choice([0, 1, 8, 255, 256, 257, 1024, SIZE, 2**31, 2**32 - 1])
    code = rng.choice(CODES[kind])
    sizes = [256] if code & 31 in (0, 1, 6, 7) else [0, 1, 8, 252, 256, 260]
    fields = {
        "reth": {"va": address, "rkey": key, "length": length},
        "atomic": {"va": address, "rkey": key, "swap_add": 2**64 - 1, "compare": 0},
        "aeth": {"syndrome": rng.randrange(256), "msn": rng.randrange(1 << 24)},
        "deth": {"qkey": 0x11111111, "src_qp": 5},
        "atomic_ack": {"original": 2**64 - 1},
        "ieth": {"rkey": key},
    }
    number = (psn + rng.choice([0, 0, 0, 0, 1, -1, 2, 1 << 23, rng.randrange(1 << 24)])) & 0xFFFFFF
    arguments = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": qp, "ack_req": True}
    while True:
        payload = b"\xee" * rng.choice(sizes)
        if fields["reth"]["length"] not in (len(payload), SIZE) and rng.random() < 0.7:
            fields["reth"]["length"] = len(payload)
        try:
            return encode(code, payload=payload, psn=number, **arguments, **fields)
        except ValueError:
            sizes = [0]


@pytest.mark.parametrize("kind", ["RC", "UC", "UD"])
def test_only_what_is_offered_changes(kind):
    changed = [attack(kind, random.Random(seed)) for seed in range(25)]
    # the attacks are real ones: what is offered does change
    assert kind == "UD" or any(changed)


def attack(kind, rng):
    """Sends hostile packets; returns whether any of them changed the memory that is offered."""
    pair = connect(kind, region_access=("local_write",), min_rnr_timer=1)
    b = pair.b
    # guard, writable, guard, readable, guard; all of it at neighbouring addresses
    memory = bytearray(3 * GUARD + 2 * SIZE)
    view = memoryview(memory)
    open_at, read_at = GUARD, 2 * GUARD + SIZE
    everything = ("local_write", "remote_write", "remote_read", "remote_atomic")
    base = 0x5000_0000
    region = b.engine.register(view[open_at : open_at + SIZE], everything, va=base + open_at)
    readable = b.engine.register(view[read_at : read_at + SIZE], ["remote_read"], va=base + read_at)
    foreign = b.engine.register(view[:GUARD], everything, va=base, pd=ProtectionDomain())
    keys = [region.key] * 5 + [readable.key, foreign.key, b.region.key]
    psn = 0
    for _ in range(400):
        if b.qp.state != "RTS":
            b.statuses()
            b.qp.modify("RESET")
            b.qp.modify("INIT", access=everything, qkey=0x11111111)
            b.qp.modify("RTR", mtu=256, src=ADDRESSES[1], dst=ADDRESSES[0], dest_qp=5)
            b.qp.modify("RTS", timeout=0)
            psn = 0
            for i in range(4):
                b.qp.post_recv(i, [b.at(RECEIVE_AT, 512)])
            if kind == "RC":  # responses may come, too
                b.qp.post_send(1, "READ", [b.at(0, 1024)], remote_va=1, rkey=1)
        before = b.qp.counters
        b.engine.receive(hostile(rng, kind, b.qp.number, keys, base + GUARD, psn), 0)
        for reply in b.engine.transmit(0, 64):
            assert len(reply) <= 256 + 60 + 28
        after = b.qp.counters
        # stays near the PSN that is expected
        psn += -1 if after["out_of_sequence"] > before["out_of_sequence"] else 1
        if after["send_rnr_err"] > before["send_rnr_err"]:
            psn -= 1
    assert bytes(memory[:open_at]) == bytes(open_at)
    assert not any(memory[open_at + SIZE :])
    own = bytes(b.memory)
    assert not any(own[1024:RECEIVE_AT]) and not any(own[RECEIVE_AT + 512 :])
    return any(memory[open_at : open_at + SIZE])


def test_strangers_do_not_disturb_a_live_connection():
    rng = random.Random(7)
    pair = connect()
    data = pair.a.fill(0, 50_000)
    pair.b.qp.post_recv(1, [pair.b.at(0, 50_000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 50_000)])
    keys = [pair.a.region.key, pair.b.region.key]
    for _ in range(30):
        pair.step()
        for side in (pair.a, pair.b):
            for _ in range(20):
                packet = bytearray(
                    hostile(rng, "RC", side.qp.number, keys, side.va(0), rng.randrange(99))
                )
                if rng.random() < 0.5:
                    packet[rng.randrange(33, len(packet))] ^= 0x55  # breaks the ICRC
                    packet[12:20] = bytes([10, 0, 0, 1, 10, 0, 0, 2])
                else:
                    packet = bytearray(stranger(packet))
                side.engine.receive(bytes(packet), pair.now_ns)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.b.statuses() == [(1, "SUCCESS")]
    assert pair.b.data(0, 50_000) == data
    assert not any(pair.b.memory[50_000:])


def stranger(packet: bytearray) -> bytes:
    """The packet as another host would send it, its ICRC right."""
    code, number = packet[28], int.from_bytes(packet[37:40], "big")
    fields = {"reth": {"va": 0x10000, "rkey": 1, "length": 0}, "aeth": {"syndrome": 0x61, "msn": 0}}
    qp = int.from_bytes(packet[33:36], "big")
    size = 256 if code & 31 in (0, 1, 6, 7) else 0
    where = {"src": "10.0.0.66", "dst": ADDRESSES[1], "dest_qp": qp, "psn": number}
    return encode(code, payload=bytes(size), **where, **fields)
