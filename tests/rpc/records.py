# SPDX-License-Identifier: BSD-2-Clause
"""Records of RPC over TCP as a peer of the tests writes them (RFC 5531 section 11)."""

from __future__ import annotations

from livedma.rpc.record import FRAGMENT_MOST


def encode_record(data: bytes, fragment_bytes: int = FRAGMENT_MOST) -> bytes:
    """Encodes one record in fragments of at most `fragment_bytes`."""
    if not 0 < fragment_bytes <= FRAGMENT_MOST:
        raise ValueError(f"a fragment has 1 to {FRAGMENT_MOST} bytes, not {fragment_bytes}")
    out = bytearray()
    for start in range(0, max(len(data), 1), fragment_bytes):
        part = data[start : start + fragment_bytes]
        is_last = start + len(part) == len(data)
        out += (len(part) | (1 << 31 if is_last else 0)).to_bytes(4, "big")
        out += part
    return bytes(out)
