# SPDX-License-Identifier: BSD-2-Clause
"""What Linux sends for data has the shape that needs no Python; nothing else that it sends does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.rpc.rdma_header import Header, decode_header

from captures import capture, packets
from livedma._native.nfs import fast_operation
from livedma.nfs.numbers import Op
from livedma.wire.inside import Inside

SENDS = (0x00, 0x04, 0x17)  # RC SEND FIRST, SEND ONLY, and that with invalidate
DATA = {"READ": Op.READ, "WRITE": Op.WRITE, "COMMIT": Op.COMMIT}


@pytest.mark.parametrize("name", ["nfs_rdma_v4.1", "nfs_rdma_v4.2", "mtu4096_nfs_v4.2"])
def test_real_calls(name: str) -> None:
    look, count = Inside(), Counter[int]()
    for packet in packets(capture(name)):
        found: dict[str, Any] = look.look(packet)
        if packet.opcode not in SENDS or found["rpc"].get("type") != "call":
            continue
        header, end = decode_header(packet.payload)
        assert isinstance(header, Header)
        position = length = 0
        for chunk in header.reads:
            position, length = chunk.position, sum(one.length for one in chunk.segments)
        operation = fast_operation(packet.payload[end:], position, length)
        names = found["rpc"].get("ops", [])
        expected = DATA.get(names[2], 0) if names[:2] == ["SEQUENCE", "PUTFH"] else 0
        assert operation == expected, names
        count[operation] += 1
    assert count[Op.READ] > 5 and count[Op.WRITE] > 10 and count[0] > 50
