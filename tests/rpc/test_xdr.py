# SPDX-License-Identifier: BSD-2-Clause
"""XDR both ways: vectors by hand, round trips, and bytes that claim more than there is."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.rpc.xdr import Decoder, Encoder, XdrError


class Color(IntEnum):
    RED = 2
    MINUS = -1


def encoded(use: Callable[[Encoder], None]) -> str:
    out = Encoder()
    use(out)
    return bytes(out).hex(" ", 4)


@pytest.mark.parametrize(
    ("use", "wanted"),
    [
        (lambda e: e.u32(0x01020304, 5), "01020304 00000005"),
        (lambda e: e.u32(), ""),
        (lambda e: e.u32(*range(10)), " ".join(f"{n:08x}" for n in range(10))),
        (lambda e: e.i32(-2), "fffffffe"),
        (lambda e: e.u64(1 << 63), "80000000 00000000"),
        (lambda e: e.i64(-(1 << 63)), "80000000 00000000"),
        (lambda e: e.boolean(True), "00000001"),
        (lambda e: e.enum(Color.MINUS), "ffffffff"),
        (lambda e: e.fixed(b"abcde", 5), "61626364 65000000"),
        (lambda e: e.opaque(b"ab"), "00000002 61620000"),
        (lambda e: e.opaque(b""), "00000000"),
        (lambda e: e.string("é"), "00000002 c3a90000"),
        (lambda e: e.array([1, 2], Encoder.u32), "00000002 00000001 00000002"),
        (lambda e: e.optional(7, Encoder.u32), "00000001 00000007"),
        (lambda e: e.optional(None, Encoder.u32), "00000000"),
        (lambda e: e.chain([7, 8], Encoder.u32), "00000001 00000007 00000001 00000008 00000000"),
        (lambda e: e.raw(b"abcd"), "61626364"),
    ],
)
def test_encoding(use: Callable[[Encoder], None], wanted: str) -> None:
    assert encoded(use) == wanted


@pytest.mark.parametrize(
    ("use", "wrong"),
    [
        (lambda e: e.u32(-1), "-1 is not an unsigned 32-bit integer at byte 0"),
        (lambda e: e.u32(7, 1 << 32), "4294967296 is not an unsigned 32-bit integer at byte 4"),
        (lambda e: e.i32(1 << 31), "2147483648 is not a signed 32-bit integer at byte 0"),
        (lambda e: e.u64(1 << 64), "18446744073709551616 is not an unsigned 64-bit"),
        (lambda e: e.i64(1 << 63), "9223372036854775808 is not a signed 64-bit"),
        (lambda e: e.fixed(b"abc", 4), "3 bytes instead of 4"),
        (lambda e: e.opaque(b"abc", 2), "length 3 is above 2"),
        (lambda e: e.string("é", 1), "length 2 is above 1"),
        (lambda e: e.string("\udc80"), "string cannot be UTF-8"),
        (lambda e: e.array([1, 2], Encoder.u32, 1), "count 2 is above 1"),
        (lambda e: e.raw(b"abc"), "3 bytes are no XDR"),
    ],
)
def test_what_cannot_be_encoded(use: Callable[[Encoder], None], wrong: str) -> None:
    with pytest.raises(XdrError) as caught:
        encoded(use)
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    ("data", "use", "wanted"),
    [
        ("fffffffe", Decoder.i32, -2),
        ("7fffffff", Decoder.i32, 0x7FFFFFFF),
        ("80000000 00000000", Decoder.i64, -(1 << 63)),
        ("7fffffff ffffffff", Decoder.i64, (1 << 63) - 1),
        ("00000002", lambda d: d.enum(Color), Color.RED),
        ("ffffffff", lambda d: d.enum(Color), Color.MINUS),
        ("61626364 65000000", lambda d: d.fixed(5), b"abcde"),
        ("00000002 c3a90000", lambda d: d.string(2), "é"),
        # There are servers that leave in padding what was there.
        ("61626364 65000100", lambda d: d.fixed(5), b"abcde"),
        ("00000001 61000001", Decoder.opaque, b"a"),
        ("00000001 61000001", Decoder.string, "a"),
        ("00000002 00000001 00000002", lambda d: d.array(Decoder.u32, 2), [1, 2]),
        ("00000000", lambda d: d.optional(Decoder.u32), None),
        ("00000001 00000007", lambda d: d.optional(Decoder.u32), 7),
        ("00000001 00000007 00000000", lambda d: d.chain(Decoder.u32, 1), [7]),
    ],
)
def test_decoding(data: str, use: Callable[[Decoder], Any], wanted: object) -> None:
    decoder = Decoder(bytes.fromhex(data))
    assert use(decoder) == wanted
    decoder.finish()


@pytest.mark.parametrize(
    ("data", "use", "wrong"),
    [
        ("000000", Decoder.i32, "bytes end inside a 4-byte word at byte 0"),
        ("00000003", lambda d: d.enum(Color), "3 is not a valid Color at byte 0"),
        ("00000001 610000", Decoder.opaque, "bytes end inside 1 bytes of data at byte"),
        ("00000005 61626364 65000000", lambda d: d.opaque(4), "length 5 is above 4 at byte 0"),
        ("00000002 61ff0000", Decoder.string, "string is not UTF-8 at byte 5"),
        ("00000003 0000", lambda d: d.array(Decoder.u32, 2), "count 3 is above 2 at byte 0"),
        ("00000003 00000001 00000001", lambda d: d.array(Decoder.u32), "3 items cannot be in 8"),
        ("00000002", lambda d: d.optional(Decoder.u32), "boolean is 0x2"),
        ("00000001 00000007 00000001", lambda d: d.chain(Decoder.u32, 1), "more than 1 items"),
        ("00000001", Decoder.finish, "4 bytes too many at byte 0"),
    ],
)
def test_what_is_refused(data: str, use: Callable[[Decoder], Any], wrong: str) -> None:
    with pytest.raises(XdrError) as caught:
        use(Decoder(bytes.fromhex(data)))
    assert wrong in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        Decoder.opaque,
        Decoder.string,
        lambda d: d.array(Decoder.u32),
        lambda d: d.fixed(0xFFFFFFFF),
        lambda d: d.array(lambda inner: inner.array(Decoder.u32)),
    ],
)
def test_a_claim_costs_nothing(use: Callable[[Decoder], Any]) -> None:
    decoder = Decoder(b"\xff\xff\xff\xfc" * 64)
    tracemalloc.start()
    try:
        with pytest.raises(XdrError):
            use(decoder)
        assert tracemalloc.get_traced_memory()[1] < 16384
    finally:
        tracemalloc.stop()


ITEMS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., None], Callable[[Decoder], Any]]] = {
    "u32": (st.integers(0, (1 << 32) - 1), Encoder.u32, Decoder.u32),
    "i32": (st.integers(-(1 << 31), (1 << 31) - 1), Encoder.i32, Decoder.i32),
    "u64": (st.integers(0, (1 << 64) - 1), Encoder.u64, Decoder.u64),
    "i64": (st.integers(-(1 << 63), (1 << 63) - 1), Encoder.i64, Decoder.i64),
    "boolean": (st.booleans(), Encoder.boolean, Decoder.boolean),
    "opaque": (st.binary(max_size=40), Encoder.opaque, Decoder.opaque),
    "string": (st.text(max_size=20), Encoder.string, Decoder.string),
    "array": (
        st.lists(st.binary(max_size=9), max_size=5),
        lambda e, value: e.array(value, Encoder.opaque),
        lambda d: d.array(Decoder.opaque),
    ),
    "optional": (
        st.none() | st.binary(max_size=9),
        lambda e, value: e.optional(value, Encoder.opaque),
        lambda d: d.optional(Decoder.opaque),
    ),
    "chain": (
        st.lists(st.text(max_size=9), max_size=5),
        lambda e, value: e.chain(value, Encoder.string),
        lambda d: d.chain(Decoder.string),
    ),
}
NAMED = st.sampled_from(sorted(ITEMS)).flatmap(
    lambda name: st.tuples(st.just(name), ITEMS[name][0])
)


@pytest.mark.slow
@given(st.lists(NAMED, max_size=8))
def test_items_survive(items: list[tuple[str, Any]]) -> None:
    out = Encoder()
    for name, value in items:
        ITEMS[name][1](out, value)
    decoder = Decoder(bytes(out))
    assert [ITEMS[name][2](decoder) for name, _ in items] == [value for _, value in items]
    decoder.finish()


@given(st.binary(max_size=64), st.lists(st.sampled_from(sorted(ITEMS)), max_size=8))
def test_what_is_decoded_is_what_would_be_encoded(data: bytes, names: list[str]) -> None:
    decoder, out = Decoder(data), Encoder()
    for name in names:
        try:
            value = ITEMS[name][2](decoder)
        except XdrError:
            return
        ITEMS[name][1](out, value)
        assert bytes(out) == data[: decoder.pos]
