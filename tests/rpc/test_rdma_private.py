# SPDX-License-Identifier: BSD-2-Clause
"""RFC 8797's private data: vectors by hand, round trips, any bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.rpc.rdma_private import DEFAULT, Inline, PrivateData, agree

KIB4 = PrivateData(4096, 8192, remote_invalidation=True)


def test_vectors() -> None:
    assert KIB4.encode() == bytes.fromhex("f6ab0e18 01 01 03 07")
    assert DEFAULT.encode() == bytes.fromhex("f6ab0e18 01 00 00 00")
    assert PrivateData.decode(bytes.fromhex("f6ab0e18 01 01 03 07")) == KIB4
    # The CM's private data is longer, and flags may get a meaning one day.
    assert PrivateData.decode(bytes.fromhex("f6ab0e18 01 ff 03 07") + bytes(48)) == KIB4


@pytest.mark.parametrize("data", ["", "f6ab0e18 01 01 03", "f6ab0e18 02 01 03 07", "00" * 8])
def test_what_is_not_understood_says_nothing(data: str) -> None:
    assert PrivateData.decode(bytes.fromhex(data)) == PrivateData(1024, 1024, False)


@pytest.mark.parametrize("size", [0, -1024, 1000, 1025, 257 * 1024])
def test_sizes_that_cannot_be_said(size: int) -> None:
    for data in (PrivateData(send_bytes=size), PrivateData(receive_bytes=size)):
        with pytest.raises(ValueError, match="is not a multiple of 1024"):
            data.encode()


def test_agreement() -> None:
    peer = PrivateData(16384, 1024, remote_invalidation=True)
    assert agree(KIB4, peer) == Inline(1024, 8192, True)
    assert agree(peer, KIB4) == Inline(8192, 1024, True)
    assert agree(KIB4, DEFAULT) == Inline(1024, 1024, False)
    assert agree(DEFAULT, KIB4) == Inline(1024, 1024, False)


SIZES = st.integers(1, 256).map(lambda units: units * 1024)


@given(st.builds(PrivateData, SIZES, SIZES, st.booleans()))
def test_private_data_survives(data: PrivateData) -> None:
    assert PrivateData.decode(data.encode()) == data


@given(st.binary(max_size=16) | st.binary(max_size=12).map(b"\xf6\xab\x0e\x18".__add__))
def test_any_bytes(data: bytes) -> None:
    found = PrivateData.decode(data)
    assert found == DEFAULT or PrivateData.decode(found.encode()) == found
