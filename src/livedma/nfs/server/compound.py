# SPDX-License-Identifier: BSD-2-Clause
"""Serves COMPOUND: operations one after the other until one fails (RFC 8881 16.2, 2.10.6).

Each operation is decoded when its turn comes, so bytes behind one that failed are never looked at.
What cannot be decoded before the first operation is an `XdrError` of `serve`: GARBAGE_ARGS.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Several
from typing import TYPE_CHECKING

from livedma._native.nfs import SMALL_REPLY
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.nfs.server.context import Context, Credential
from livedma.nfs.server.ops import rules
from livedma.nfs.server.ops.registry import OPERATIONS
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.sequence import Sequence
from livedma.nfs.server.state.channel import (
    COMPOUND_REPLY_BYTES,
    RPC_REPLY_BYTES,
    SEQUENCE_REPLY_BYTES,
    ChannelAttributes,
)
from livedma.rpc.service import Connection, Part
from livedma.rpc.xdr import WORD_BYTES, Decoder, Encoder, XdrError

if TYPE_CHECKING:
    from livedma.nfs.server.parts import Server

__all__ = ["serve"]

_log = logging.getLogger(__name__)

MINOR_VERSIONS = (1, 2)
_ERROR_BYTES = 8  # an operation's number and its status
_FINGERPRINT_BYTES = 512  # are enough to tell two requests apart
_FINGERPRINT_MASK = (1 << 64) - 1


def serve(
    server: Server,
    connection: Connection,
    credential: Credential,
    decoder: Decoder,
    message_bytes: int,
) -> Several[Part]:
    """Serves the COMPOUND whose arguments `decoder` is at; `message_bytes`: of the call."""
    tag = decoder.opaque()
    ctx = Context(server, connection, credential, decoder.u32())
    compound = _Compound(ctx, decoder, tag, decoder.u32())
    if ctx.minor not in MINOR_VERSIONS:
        return compound.refused(Status.MINOR_VERS_MISMATCH)
    try:
        tag.decode()
    except UnicodeDecodeError:
        return compound.refused(Status.INVAL)
    if compound.count == 0:
        return compound.refused(Status.OK)
    if decoder.peek() == Op.SEQUENCE:
        return compound.in_session(message_bytes)
    compound.run()
    return compound.parts()


class _Compound:
    """Executes one COMPOUND."""

    def __init__(self, ctx: Context, decoder: Decoder, tag: bytes, count: int) -> None:
        self.count = count
        self._ctx = ctx
        self._decoder = decoder
        self._tag = tag
        self._done = 0
        self._status = Status.OK
        self._results = ReplyEncoder()
        self._room: int | None = None  # for results; None: no session limits it
        self._too_big = Status.REP_TOO_BIG

    def refused(self, status: Status) -> list[Part]:
        """Returns a result without operations."""
        self._status = status
        return self.parts()

    def parts(self) -> list[Part]:
        """Returns the result so far."""
        return [self._header(), *self._results.parts()]

    def _header(self) -> bytes:
        out = Encoder()
        out.u32(self._status)
        out.opaque(self._tag)
        out.u32(self._done)
        return bytes(out)

    def in_session(self, message_bytes: int) -> Several[Part]:
        """Serves SEQUENCE and what follows; a repeated request gets its first result again."""
        self._decoder.u32()
        try:
            asked = Sequence.decode(self._decoder)
            session = self._ctx.server.sessions.find(asked.session_id)
            self._ctx.server.sessions.enter(session, self._ctx.connection)
            self._limit(asked, session.fore, message_bytes)
            verdict = session.slots.begin(
                asked.slot, asked.sequence, asked.highest, asked.cache_this, self._fingerprint()
            )
            if isinstance(verdict, bytes):
                return [verdict]
            if verdict not in (Status.OK, Status.RETRY_UNCACHED_REP):
                raise NfsError(Status(verdict))
        except (NfsError, XdrError) as error:
            self._fail(Op.SEQUENCE, 0, error)
            return self.parts()

        ctx = self._ctx
        ctx.session, ctx.client = session, session.client
        self._results.u32(Op.SEQUENCE, Status.OK)
        asked.encode_result(self._results, session.slots, ctx.server.flags(session))
        self._done = 1
        if verdict == Status.RETRY_UNCACHED_REP:  # answers what follows SEQUENCE (2.10.6.1.3)
            if self.count > 1:
                start = len(self._results)
                self._fail(self._next_op(), start, NfsError(Status.RETRY_UNCACHED_REP))
            return self.parts()
        reply: bytes | None = None
        try:
            with ctx.server.store.acting_as(ctx.credential):
                self.run()
            if asked.cache_this or self._results.size <= SMALL_REPLY:
                reply = self._header() + self._results.flat()
        finally:
            session.slots.end(asked.slot, reply, ctx.read_bytes, ctx.written_bytes, ctx.storage_ns)
            self._count()
            with ctx.server.lock:
                ctx.server.clients.renew(session.client, session)
        return self.parts()

    def _count(self) -> None:
        ctx = self._ctx
        if ctx.read_bytes or ctx.written_bytes or ctx.storage_ns:
            ctx.connection.moved(ctx.read_bytes, ctx.written_bytes, ctx.storage_ns)

    def _limit(self, asked: Sequence, fore: ChannelAttributes, message_bytes: int) -> None:
        """Applies the limits of the session; a request above them leaves its slot unchanged."""
        if message_bytes > fore.request_bytes:
            raise NfsError(Status.REQ_TOO_BIG)
        if self.count > fore.operations:
            raise NfsError(Status.TOO_MANY_OPS)
        most = fore.response_bytes
        if asked.cache_this and fore.cached_bytes < most:
            most, self._too_big = fore.cached_bytes, Status.REP_TOO_BIG_TO_CACHE
        tag_bytes = len(self._tag) + -len(self._tag) % WORD_BYTES
        self._room = most - RPC_REPLY_BYTES - COMPOUND_REPLY_BYTES - tag_bytes
        needed = SEQUENCE_REPLY_BYTES + (_ERROR_BYTES if self.count > 1 else 0)
        if needed > self._room:
            raise NfsError(self._too_big)

    def _fingerprint(self) -> int:
        decoder, credential = self._decoder, self._ctx.credential
        rest = decoder.data[decoder.pos : decoder.pos + _FINGERPRINT_BYTES]
        parts = (credential.uid, credential.gid, self.count, decoder.left, rest)
        return hash(parts) & _FINGERPRINT_MASK

    def run(self) -> None:
        """Executes the operations that are left, up to the first that fails."""
        while self._done < self.count and self._status == Status.OK:
            self._one()

    def _one(self) -> None:
        start = len(self._results)
        op = Op.ILLEGAL
        try:
            op = self._next_op()
            self._check_place(op)
            self._serve(op)
        except (NfsError, XdrError) as error:
            self._fail(op, start, error)
        except Exception:
            _log.exception("%s failed", op.name)
            self._fail(op, start, NfsError(Status.SERVERFAULT))
        else:
            self._done += 1

    def _next_op(self) -> Op:
        """Returns the number that comes; ILLEGAL if this minor version does not know it."""
        number = self._decoder.u32()
        try:
            op = Op(number)
        except ValueError:
            return Op.ILLEGAL
        return op if rules.exists(op, self._ctx.minor) else Op.ILLEGAL

    def _check_place(self, op: Op) -> None:
        """Checks that the operation may be in this place (2.10.2.3, 18.34.3, 18.37.3, 18.46.3)."""
        if op is Op.ILLEGAL:
            raise NfsError(Status.OP_ILLEGAL)
        if op is Op.SEQUENCE:
            raise NfsError(Status.SEQUENCE_POS)
        if self._ctx.session is None:
            if op not in rules.OUTSIDE_SESSIONS:
                raise NfsError(Status.OP_NOT_IN_SESSION)
            if self.count > 1:
                raise NfsError(Status.NOT_ONLY_OP)
            return
        is_last = self._done + 1 == self.count
        if op is Op.BIND_CONN_TO_SESSION or (op is Op.DESTROY_SESSION and not is_last):
            raise NfsError(Status.NOT_ONLY_OP)

    def _serve(self, op: Op) -> None:
        ctx, results = self._ctx, self._results
        served = OPERATIONS.get(op)
        if served is None or served.minor > ctx.minor:
            raise NfsError(Status.NOTSUPP)
        if served.needs_handle and ctx.current is None:
            raise NfsError(Status.NOFILEHANDLE)
        if served.changes and ctx.server.config.read_only:
            raise NfsError(Status.ROFS)
        if op not in rules.HARMLESS:
            self._check_room(rules.result_most(op))
        results.u32(op, Status.OK)
        served.serve(ctx, self._decoder, results)
        self._check_room(0)
        if op in rules.SETS_HANDLE:
            ctx.current_stateid = None

    def _check_room(self, more: int) -> None:
        """Raises unless there is room for `more` bytes, and for an error of what follows."""
        after = _ERROR_BYTES if self._done + 1 < self.count else 0
        if self._room is not None and self._results.size + more + after > self._room:
            raise NfsError(self._too_big)

    def _fail(self, op: Op, start: int, error: NfsError | XdrError) -> None:
        """Ends the COMPOUND with this result of `op`, which replaces what it has encoded."""
        self._results.rewind(start)
        self._status = error.status if isinstance(error, NfsError) else Status.BADXDR
        self._results.u32(op, self._status)
        body = error.body if isinstance(error, NfsError) else b""
        served = OPERATIONS.get(op)
        self._results.raw(body or (served.error_body if served else b""))
        self._done += 1
