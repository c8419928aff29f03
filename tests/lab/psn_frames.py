# SPDX-License-Identifier: BSD-2-Clause
"""Frames that differ by their PSN, for tests of what a wire does to them."""

from __future__ import annotations

from livedma.lab.impairment import parse
from livedma.wire.encode import encode, ethernet

ADDRESSES = {4: {"src": "10.80.0.1", "dst": "10.80.0.2"}, 6: {"src": "fd80::1", "dst": "fd80::2"}}


def frame(psn: int, opcode: str = "RC_SEND_ONLY", *, version: int = 4, size: int = 64) -> bytes:
    payload = psn.to_bytes(4, "big") * (size // 4)
    return ethernet(encode(opcode, payload=payload, psn=psn, dest_qp=5, **ADDRESSES[version]))


def psns(frames: list[bytes]) -> list[int]:
    return [int.from_bytes(one[parse(one).bth + 9 :][:3], "big") for one in frames]  # type: ignore[union-attr]
