"""READ, WRITE and COMMIT."""

from __future__ import annotations

from livedma.nfs.attributes import io_bytes
from livedma.nfs.context import Context
from livedma.nfs.numbers import NfsError, Op, Stable, Status
from livedma.nfs.ops.registry import operation
from livedma.nfs.reply import ReplyEncoder
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

_U64_MOST = (1 << 64) - 1


@operation(Op.READ, needs_handle=True)
def read(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Data from an offset on, and whether that is the end."""
    stateid, offset, count = Stateid.decode(decoder), decoder.u64(), decoder.u32()
    ctx.node.want_file()
    with ctx.server.opens.for_io(ctx, stateid, write=False) as fd:
        data, is_end = ctx.server.store.read(fd, offset, min(count, io_bytes(ctx.server.config)))
    ctx.read_bytes += len(data)
    out.boolean(is_end)
    out.data(data)


@operation(Op.WRITE, needs_handle=True, changes=True)
def write(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Data goes to the file, and to the disk before the answer if the client wants that."""
    stateid, offset = Stateid.decode(decoder), decoder.u64()
    stable, data = decoder.enum(Stable), decoder.opaque()
    ctx.node.want_file()
    store = ctx.server.store
    if offset + len(data) > _U64_MOST:
        raise NfsError(Status.INVAL)
    with ctx.server.opens.for_io(ctx, stateid, write=True) as fd:
        # Before the data: if it is lost by then, the client has to learn of that later.
        verifier = store.verifier
        written = store.write(fd, offset, data, stable)
    ctx.written_bytes += written
    store.modified(ctx.node)
    out.u32(written, stable)
    out.fixed(verifier, len(verifier))


@operation(Op.COMMIT, needs_handle=True)
def commit(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """All that was written to the file survives a crash from here on, whatever range is named."""
    offset, count = decoder.u64(), decoder.u32()
    if offset + count > _U64_MOST:
        raise NfsError(Status.INVAL)
    store = ctx.server.store
    ctx.server.delegations.make_way_to_read(ctx, ctx.node)
    held = ctx.server.delegations.shared(ctx, ctx.node)
    if held is None:
        verifier = store.commit(ctx.node)
    else:
        try:
            store.sync(held.fd)
        finally:
            held.drop()
        verifier = store.verifier
    out.fixed(verifier, len(verifier))
