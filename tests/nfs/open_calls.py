# SPDX-License-Identifier: BSD-2-Clause
"""Arguments of OPEN and its kin, as clients encode them."""

from __future__ import annotations

from collections.abc import Callable

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute
from livedma.nfs.server.state.shares import READ
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder

Part = Callable[[Encoder], None]


def attributes(size: int | None = None, mode: int | None = None) -> Part:
    def encode(out: Encoder) -> None:
        values = Encoder()
        wanted = 0
        if size is not None:
            values.u64(size)
            wanted |= bits(Attribute.SIZE)
        if mode is not None:
            values.u32(mode)
            wanted |= bits(Attribute.MODE)
        out.raw(encode_bitmap(wanted))
        out.opaque(bytes(values))

    return encode


def no_create(out: Encoder) -> None:
    out.u32(0)


def _creating(mode: int, verifier: bytes | None, given: Part | None) -> Part:
    def encode(out: Encoder) -> None:
        out.u32(1, mode)
        if verifier is not None:
            out.fixed(verifier, 8)
        if given is not None:
            given(out)

    return encode


NOTHING = attributes()


def unchecked(given: Part = NOTHING) -> Part:
    return _creating(0, None, given)


def guarded(given: Part = NOTHING) -> Part:
    return _creating(1, None, given)


def exclusive(verifier: bytes) -> Part:
    return _creating(2, verifier, None)


def exclusive_1(verifier: bytes, given: Part = NOTHING) -> Part:
    return _creating(3, verifier, given)


def by_name(name: bytes) -> Part:
    def encode(out: Encoder) -> None:
        out.u32(0)
        out.opaque(name)

    return encode


def by_handle(out: Encoder) -> None:
    out.u32(4)


def previous(delegation: int = 0) -> Part:
    return lambda out: out.u32(1, delegation)


def delegated(stateid: Stateid, name: bytes | None) -> Part:
    def encode(out: Encoder) -> None:
        out.u32(5 if name is None else 2)
        stateid.encode(out)
        if name is not None:
            out.opaque(name)

    return encode


def open_args(
    claim: Part,
    how: Part = no_create,
    access: int = READ,
    deny: int = 0,
    owner: bytes = b"o",
) -> Encoder:
    out = Encoder()
    out.u32(0, access, deny)
    out.u64(77)  # of no meaning, as the sequence number before
    out.opaque(owner)
    how(out)
    claim(out)
    return out


def downgrade_args(stateid: Stateid, access: int, deny: int = 0) -> Encoder:
    out = Encoder()
    stateid.encode(out)
    out.u32(0, access, deny)
    return out


def close_args(stateid: Stateid) -> Encoder:
    out = Encoder()
    out.u32(0)
    stateid.encode(out)
    return out
