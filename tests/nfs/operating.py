# SPDX-License-Identifier: BSD-2-Clause
"""Operations one by one, on a real server without its network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.nfs.stores import ROOT, SECRET

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.context import Context, Credential
from livedma.nfs.server.ops import attribute, directory, file_io, link, readdir, sparse, xattr
from livedma.nfs.server.ops.registry import OPERATIONS
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.store import Node, Store
from livedma.nfs.stateid import ANONYMOUS
from livedma.rpc.service import Data
from livedma.rpc.xdr import Decoder, Encoder

MODULES = (attribute, directory, file_io, link, readdir, sparse, xattr)


class Desk:
    """Where operations are done; `ctx` is that of one long COMPOUND."""

    def __init__(self, export: Path, persist: Persist, **config: Any) -> None:
        settings = Config(**({"squash": "none"} | config))
        store = Store(export, secret=SECRET, config=settings)
        self.server = Server(store, persist, settings)
        self.store = store
        self.ctx = self.context()

    def context(self, credential: Credential = ROOT, minor: int = 2) -> Context:
        return Context(
            self.server,
            None,
            credential,
            minor,
            current=self.store.root,  # type: ignore[arg-type]
        )

    def at(self, node: Node) -> Desk:
        """With this one as the current file."""
        self.ctx.current = node
        return self

    def name(self, *names: bytes) -> Node:
        node = self.store.root
        for name in names:
            node = self.store.lookup(node, name)
        return node

    def do(self, op: Op, arguments: bytes = b"") -> Decoder:
        """The result's body; every operation reads all of its arguments."""
        out, decoder = ReplyEncoder(), Decoder(arguments)
        with self.store.acting_as(self.ctx.credential):
            OPERATIONS[op].serve(self.ctx, decoder, out)
        decoder.finish()
        return Decoder(flat(out))

    def status(self, op: Op, arguments: bytes = b"") -> Status:
        try:
            self.do(op, arguments)
        except NfsError as failure:
            return failure.status
        return Status.OK


@contextmanager
def desk(tmp_path: Path, **config: Any) -> Iterator[Desk]:
    (tmp_path / "export").mkdir()
    with Persist(tmp_path / "state") as persist:
        yield Desk(tmp_path / "export", persist, **config)


def flat(out: ReplyEncoder) -> bytes:
    """A reply as on a stream."""
    ret = b""
    for part in out.parts():
        data = bytes(part.data) if isinstance(part, Data) else part
        ret += data + bytes(-len(data) % 4)
    return ret


def xdr(*items: int | bytes) -> bytes:
    """Words and opaque data."""
    out = Encoder()
    for item in items:
        if isinstance(item, bytes):
            out.opaque(item)
        else:
            out.u32(item)
    return bytes(out)


def u64(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "big") for value in values)


def stateid() -> bytes:
    out = Encoder()
    ANONYMOUS.encode(out)
    return bytes(out)


def fattr(values: dict[Attribute, bytes]) -> bytes:
    """Attributes by their encoded values."""
    return encode_bitmap(bits(*values)) + xdr(b"".join(values[one] for one in sorted(values)))


def asked(*attrs: Attribute) -> bytes:
    return encode_bitmap(bits(*attrs))


def attributes(decoder: Decoder) -> tuple[int, Decoder]:
    """What a fattr4 has, and a decoder at its values."""
    return decode_bitmap(decoder), Decoder(decoder.opaque())
