# SPDX-License-Identifier: BSD-2-Clause
"""The core's responder and the one in reference.py agree on any stream of requests."""

import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import KINDS, Answer, Reference, Region, Request

from engines import ADDRESSES, Side
from livedma._native.wire import decode, encode

MTU, SIZE, VA = 256, 4096, 0x10000
SCHEDULES = int(os.environ.get("LIVEDMA_SCHEDULES", "500"))
RIGHTS = {"write": "remote_write", "read": "remote_read", "atomic": "remote_atomic"}
PROTECTED = ("read",)
OPEN = ("write", "read", "atomic")

payloads = {"first": [256, 252], "middle": [256, 0], "last": [1, 256, 7, 0, 260]}
modes = st.sampled_from(["follow"] * 12 + ["again"] * 6 + ["skip"] * 2 + ["any"])


@st.composite
def anything(draw):
    """A request with numbers that are near to right ones; PSN relative to the expected one."""
    code = draw(st.sampled_from([*KINDS, *KINDS, *KINDS, 0x1D]))
    position = KINDS.get(code, ("", ""))[1]
    size = draw(st.sampled_from(payloads.get(position, [0, 1, 8, 255, 256, 260])))
    ahead = draw(st.sampled_from([0] * 12 + [-1, -2, -5, 1, 100]))
    va = VA + draw(st.sampled_from([0, 8, 16, 1000, 256, 512, SIZE - 8, SIZE, -8, 4]))
    key = draw(st.sampled_from([1] * 12 + [2, 3]))
    length = draw(st.sampled_from([size] * 4 + [0, 1, 256, 600, 900, 2**31, 2**31 + 1]))
    number = draw(st.sampled_from([0, 1, 2**64 - 1]))
    ack_req = draw(st.booleans())
    return Request(code, ahead, bytes(size), va, key, length, number, number, ack_req)


def following(model: Reference, r: Request, choice: int) -> Request:
    """The request made into one that is in order now."""
    size = choice % (MTU + 1)
    if model.operation is None:
        code = [0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, 0x0C, 0x13, 0x14][choice % 9]
        if code in (0x00, 0x06):
            size = MTU
        length = {0x06: 300 + size, 0x0C: 1 + choice % 1200}.get(code, size)
        va = VA + (choice // 9 % 2 * 8 if code > 0x0C else choice % 300 * 8)
        payload = bytes(size) if code < 0x0C else b""
        return replace(r, opcode=code, psn=0, payload=payload, va=va, key=1, length=length)
    base = 0x00 if model.operation == "send" else 0x06
    if model.operation == "write":
        size = min(model.left, MTU)
        code = 0x07 if model.left > MTU else 0x08 + choice % 2
    else:
        code = [0x01, 0x02, 0x03][choice % 3]
        size = MTU if code == 0x01 else max(size, 1)
    assert code > base
    return replace(r, opcode=code, psn=0, payload=bytes(size))


def again(model: Reference, past: list[Request], choice: int) -> Request:
    """An earlier request, or the rest of an earlier READ. PSNs are relative."""
    r = past[-1 - choice % min(len(past), 4)]
    skip = choice // 4 % 3
    if r.opcode == 0x0C and r.length > skip * MTU:
        rest = {"va": r.va + skip * MTU, "length": r.length - skip * MTU}
        r = replace(r, psn=(r.psn + skip) & 0xFFFFFF, **rest)
    return replace(r, psn=(r.psn - model.expected) & 0xFFFFFF)


def choose(model: Reference, past: list[Request], mode: str, r: Request, choice: int) -> Request:
    if mode == "again" and past:
        r = again(model, past, choice)
    elif mode in ("follow", "skip"):
        r = following(model, r, choice)
        r.psn = choice % 3 if mode == "skip" else 0
    psn = (model.expected + r.psn) & 0xFFFFFF
    return replace(r, psn=psn, payload=bytes([psn & 0xFF or 1]) * len(r.payload))


def answers_of(side: Side) -> list[Answer]:
    found = []
    for frame in side.engine.transmit(0, 100):
        packet = decode(frame, link=228)
        name = packet.opcode_name
        fields = packet.to_dict()
        if name == "RC_ACKNOWLEDGE":
            found.append(Answer("ack", packet.psn, frame[40]))
        elif name == "RC_ATOMIC_ACKNOWLEDGE":
            found.append(Answer("atomic", packet.psn, frame[40], frame[51:43:-1]))
        else:
            assert name.startswith("RC_RDMA_READ_RESPONSE"), fields
            found.append(Answer("read", packet.psn, 0x1F, packet.payload))
    return found


def frame_of(r: Request, qp: int) -> bytes | None:
    """None if no packet can say that, or none that decodes."""
    if r.opcode == 0x1D and len(r.payload) != 8:
        return None
    try:
        return encode(
            r.opcode, src=ADDRESSES[0], dst=ADDRESSES[1], dest_qp=qp, psn=r.psn, payload=r.payload,
            ack_req=r.ack_req, imm=1, reth={"va": r.va, "rkey": r.key, "length": r.length},
            atomic={
                "va": r.va, "rkey": r.key, "swap_add": r.swap_add, "compare": r.compare,
            },
        )  # fmt: skip
    except ValueError:
        return None


@pytest.mark.slow
@settings(max_examples=SCHEDULES)
@given(
    stream=st.lists(st.tuples(modes, anything(), st.integers(0, 10**6)), min_size=12, max_size=50),
    receives=st.lists(st.sampled_from([256, 600, 4096, 8192]), max_size=12),
    start=st.sampled_from([0, 0xFFFFFE, 0xFFFFF0, 12345]),
)
def test_they_agree(stream, receives, start):
    side = Side("RC", access=("local_write",), size=1 << 15)
    memories = [bytearray(SIZE), bytearray(SIZE)]
    rights = {1: OPEN, 2: PROTECTED}
    regions = {k: Region(VA, bytearray(SIZE), frozenset(n)) for k, n in rights.items()}
    held = [
        side.engine.register(m, ["local_write", *(RIGHTS[n] for n in rights[k])], va=VA, key=k)
        for k, m in enumerate(memories, 1)
    ]
    side.qp.modify("INIT", access=["remote_write", "remote_read", "remote_atomic"])
    side.qp.modify(
        "RTR", mtu=MTU, src=ADDRESSES[1], dst=ADDRESSES[0], dest_qp=5, rq_psn=start, min_rnr_timer=1
    )
    for i, size in enumerate(receives):
        side.qp.post_recv(i, [side.at(0, size)])
    model = Reference(MTU, start, regions, list(receives))
    past: list[Request] = []
    for mode, template, choice in stream:
        r = choose(model, past, mode, template, choice)
        frame = frame_of(r, side.qp.number)
        if frame is None:
            continue
        side.engine.receive(frame, 0)
        past.append(r)
        assert answers_of(side) == model.take(r), (r, model)
        assert (side.qp.state == "ERR") == model.dead
        if model.dead:
            break
    for key, memory in enumerate(memories, 1):
        assert memory == regions[key].memory
    good = [c for c in side.cq.poll(100) if c.status == "SUCCESS"]
    assert [c.length for c in good] == model.completed
    assert all((c.imm is not None) or c.operation == "RECV" for c in good)
    for region in held:
        region.close()
