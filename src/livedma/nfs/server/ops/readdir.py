# SPDX-License-Identifier: BSD-2-Clause
"""Serves READDIR."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from livedma.nfs.bitmap import bits, decode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.attributes import (
    WRITE_ONLY,
    encode_attributes,
    encode_entry,
    encode_error,
    supported,
)
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.store import Entry
from livedma.rpc.xdr import Decoder, Encoder

# Cookies stay valid forever, so no verifier has to tell old ones from new ones.
_VERIFIER = bytes(8)
_ENDS_BYTES = len(_VERIFIER) + 8  # the verifier, the end of the list, and the eof flag
_RESPONSE_MOST = 1 << 20
_ROOM_FOR_HEADERS = 1024


@dataclass(frozen=True, slots=True)
class _Asked:
    cookie: int
    verifier: bytes
    names_most: int
    bytes_most: int
    wanted: int

    @staticmethod
    def decode(decoder: Decoder) -> _Asked:
        cookie, verifier = decoder.u64(), decoder.fixed(len(_VERIFIER))
        return _Asked(cookie, verifier, decoder.u32(), decoder.u32(), decode_bitmap(decoder))


@operation(Op.READDIR, needs_handle=True)
def readdir(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Returns entries behind a cookie, as many as the client has room for (RFC 8881 §18.23)."""
    asked = _Asked.decode(decoder)
    _check(asked)
    room = min(asked.bytes_most, _room(ctx, out)) - _ENDS_BYTES
    names_room = asked.names_most or room
    entries = bytearray()
    is_end = True
    with ctx.server.store.reading(ctx.node, asked.cookie) as listing:
        for name, encoded in _encoded(ctx, listing, asked.wanted):
            names_room -= 8 + 4 + len(name) + -len(name) % 4
            if len(entries) + len(encoded) > room or (names_room < 0 and entries):
                is_end = False
                break
            entries += encoded
    if not is_end and not entries:
        raise NfsError(Status.TOOSMALL)
    out.fixed(_VERIFIER, len(_VERIFIER))
    out.raw(bytes(entries))
    out.boolean(False)
    out.boolean(is_end)


def _check(asked: _Asked) -> None:
    if asked.bytes_most < _ENDS_BYTES:
        raise NfsError(Status.TOOSMALL)
    if asked.verifier != _VERIFIER:
        raise NfsError(Status.NOT_SAME if asked.cookie else Status.BAD_COOKIE)
    if asked.wanted & WRITE_ONLY:
        raise NfsError(Status.INVAL)


def _room(ctx: Context, out: ReplyEncoder) -> int:
    if ctx.session is None:
        return _RESPONSE_MOST
    return max(ctx.session.fore.response_bytes - out.size - _ROOM_FOR_HEADERS, 0)


def _encoded(ctx: Context, listing: Iterator[Entry], wanted: int) -> Iterator[tuple[bytes, bytes]]:
    wanted &= supported(ctx.server, ctx.minor)
    for entry in listing:
        attributes = encode_entry(wanted, entry.inode)
        if attributes is None:
            attributes = _attributes(ctx, entry, wanted)
        if attributes is None:
            continue
        out = Encoder()
        out.boolean(True)
        out.u64(entry.cookie)
        out.opaque(entry.name)
        out.raw(attributes)
        yield entry.name, bytes(out)


def _attributes(ctx: Context, entry: Entry, wanted: int) -> bytes | None:
    """Returns None if the entry has gone."""
    try:
        node = ctx.server.store.lookup(ctx.node, entry.name)
        return encode_attributes(ctx.server, node, wanted, ctx.minor)
    except NfsError as failure:
        if failure.status in (Status.NOENT, Status.STALE):
            return None
        # RFC 8881 §5.8.1.12: a client that asks for rdattr_error still gets the other entries.
        if wanted & bits(Attribute.RDATTR_ERROR):
            return encode_error(failure.status)
        raise
