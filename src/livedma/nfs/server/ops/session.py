# SPDX-License-Identifier: BSD-2-Clause
"""Operations on clients and sessions (RFC 8881 18.33 to 18.37, 18.50, 18.51)."""

from __future__ import annotations

from livedma.nfs.numbers import (
    OPAQUE_MOST,
    SESSION_ID_BYTES,
    VERIFIER_BYTES,
    BindFrom,
    ExchangeFlag,
    NfsError,
    Op,
    StateProtection,
    Status,
)
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.state.backchannel import CallbackSecurity
from livedma.nfs.server.state.channel import ChannelAttributes
from livedma.nfs.server.state.clients import Client, principal_of
from livedma.nfs.server.state.sessions import CONN_BACK_CHAN, CreateSession
from livedma.rpc.xdr import Decoder, XdrError

__all__: list[str] = []

# EXCHGID4_FLAG_* that a client may set. SUPP_FENCE_OPS of 4.2 is for pNFS, which is not here: Linux
# refuses it as well.
_FROM_CLIENT = 0x00000003 | 0x00000100 | 0x00070000 | ExchangeFlag.UPDATE_CONFIRMED_REC_A

_CREATE_SESSION_FLAGS = 0x7
_BITMAP_WORDS_MOST = 8
_OID_BYTES_MOST = 256

_IMPLEMENTATION = ("livedma.dev", "livedma")


@operation(Op.EXCHANGE_ID)
def _exchange_id(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    verifier = args.fixed(VERIFIER_BYTES)
    owner = args.opaque(OPAQUE_MOST)
    flags = args.u32()
    protection = _decode_protection(args)
    args.array(_skip_implementation, most=1)
    if flags & ~_FROM_CLIENT:
        raise NfsError(Status.INVAL)
    if protection is not None:
        raise NfsError(protection)
    server = ctx.server
    with server.lock:
        if server.sessions.refuses_client(owner, ctx.connection):
            # Linux's client ends a mount at once, with EIO. Of a refused CREATE_SESSION it says
            # that the protocol is not supported, and tries older versions.
            raise NfsError(Status.SERVERFAULT)
        client = server.clients.exchange(
            owner,
            verifier,
            principal_of(ctx.credential),
            ctx.connection.peer,
            update=bool(flags & ExchangeFlag.UPDATE_CONFIRMED_REC_A),
        )
        out.u64(client.number)
        out.u32(client.creation.next)
        confirmed = ExchangeFlag.CONFIRMED_R if client.is_confirmed else 0
    out.u32(ExchangeFlag.USE_NON_PNFS | confirmed)
    out.u32(StateProtection.NONE)
    out.u64(0)  # so_minor_id
    out.opaque(server.owner)
    out.opaque(server.owner)  # The scope is this server: no other one knows its handles.
    out.u32(1)
    for text in _IMPLEMENTATION:
        out.string(text)
    out.i64(0)
    out.u32(0)


def _decode_protection(args: Decoder) -> Status | None:
    """Returns None for SP4_NONE, all that works without RPCSEC_GSS; else the refusal's status."""
    how = args.u32()
    if how == StateProtection.NONE:
        return None
    if how not in (StateProtection.MACH_CRED, StateProtection.SSV):
        raise XdrError(f"state protection {how}", args.pos - 4)
    for _ in ("must_enforce", "must_allow"):
        args.array(Decoder.u32, _BITMAP_WORDS_MOST)
    if how == StateProtection.MACH_CRED:
        return Status.INVAL  # 18.35.3: it takes a GSS credential
    hashes = args.array(_decode_oid)
    ciphers = args.array(_decode_oid)
    args.u32()
    args.u32()
    if not hashes or not ciphers:
        return Status.INVAL
    return Status.HASH_ALG_UNSUPP


def _decode_oid(args: Decoder) -> bytes:
    return args.opaque(_OID_BYTES_MOST)


def _skip_implementation(args: Decoder) -> None:
    args.opaque()
    args.opaque()
    args.i64()
    args.u32()


@operation(Op.CREATE_SESSION)
def _create_session(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    client, sequence, flags = args.u64(), args.u32(), args.u32()
    fore, back = ChannelAttributes.decode(args), ChannelAttributes.decode(args)
    security = CallbackSecurity.decode(args)
    if flags & ~_CREATE_SESSION_FLAGS:
        raise NfsError(Status.INVAL)
    wants_back = bool(flags & CONN_BACK_CHAN)
    asked = CreateSession(client, sequence, fore, back, security, ctx.minor, wants_back)
    out.raw(ctx.server.sessions.create(ctx.connection, ctx.credential, asked))


@operation(Op.BACKCHANNEL_CTL)
def _backchannel_ctl(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    security = CallbackSecurity.decode(args)
    if security.credential is None:  # GSS handles: none is known (18.33.3)
        raise NfsError(Status.NOENT)
    if ctx.session is not None:
        with ctx.server.lock:
            ctx.session.back_channel.security = security


@operation(Op.BIND_CONN_TO_SESSION)
def _bind_conn_to_session(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    session_id = args.fixed(SESSION_ID_BYTES)
    wanted = args.enum(BindFrom)
    args.boolean()
    bound = ctx.server.sessions.bind(session_id, ctx.connection, ctx.credential, wanted)
    out.fixed(session_id, SESSION_ID_BYTES)
    out.enum(bound)
    out.boolean(False)  # A TCP connection stays one, and so does one over RDMA.


@operation(Op.DESTROY_SESSION)
def _destroy_session(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.server.sessions.destroy(args.fixed(SESSION_ID_BYTES), ctx.connection)


@operation(Op.DESTROY_CLIENTID)
def _destroy_clientid(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    number = args.u64()
    with ctx.server.lock:
        ctx.server.clients.destroy(number)


@operation(Op.RECLAIM_COMPLETE)
def _reclaim_complete(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    is_of_one_filesystem = args.boolean()
    if is_of_one_filesystem:
        # After a migration (18.51.3): there is none here, so nothing was to be reclaimed.
        assert ctx.node
        return
    client = _client_of(ctx)
    if client.has_reclaimed:
        raise NfsError(Status.COMPLETE_ALREADY)
    ctx.server.recovery.complete(client.owner)
    client.has_reclaimed = True


def _client_of(ctx: Context) -> Client:
    if ctx.client is None:
        raise NfsError(Status.OP_NOT_IN_SESSION)
    return ctx.client
