# SPDX-License-Identifier: BSD-2-Clause
"""RPC-over-RDMA version 1 (RFC 8166): the header in front of each RPC message, and its rules.

`decode_header` reads what a SEND brought: `Header` (RDMA_MSG, RDMA_NOMSG), `ErrorHeader`
(RDMA_ERROR) or `Done` (RDMA_DONE). What breaks a rule is a `HeaderError`, and `error_reply` says
how a responder answers it. Where the parts of a message lie is the subject of `rdma_chunks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from tests.rpc.rdma_chunks import ReadChunk, Segment, position_error

from livedma.rpc.xdr import Decoder, Encoder, XdrError
from livedma.wire.rpcrdma import DONE, ERROR, MSG, MSGP, NOMSG, VERSION

__all__ = [
    "Done",
    "ErrorCode",
    "ErrorHeader",
    "Header",
    "HeaderError",
    "Limits",
    "Proc",
    "decode_header",
    "encode_header",
    "error_reply",
]

_SEGMENT_BYTES = 16
_ADDRESSES = 1 << 64


class Proc(IntEnum):
    """Where the RPC message is: behind the header, or in a chunk (section 4.2)."""

    RDMA_MSG = MSG
    RDMA_NOMSG = NOMSG


class ErrorCode(IntEnum):
    """What was wrong with a header (section 4.5)."""

    ERR_VERS = 1
    ERR_CHUNK = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one header may ask for.

    `chunks` are those of the read list, and likewise those of the write list; `segments` those of
    all lists together; `list_bytes` what the segments of one list may add up to.
    """

    chunks: int = 16
    segments: int = 256
    list_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Header:
    """RDMA_MSG or RDMA_NOMSG.

    `reads` are in the order of their positions. A write chunk without segments is one that the
    requester does not offer (section 3.4.6); `reply` is None if there is no reply chunk.
    """

    xid: int
    credits: int
    proc: Proc = Proc.RDMA_MSG
    reads: tuple[ReadChunk, ...] = ()
    writes: tuple[tuple[Segment, ...], ...] = ()
    reply: tuple[Segment, ...] | None = None


@dataclass(frozen=True, slots=True)
class ErrorHeader:
    """RDMA_ERROR. `versions`: the lowest and highest there are, with ERR_VERS alone.

    `version` repeats that of the message with the error (section 4.5).
    """

    xid: int
    credits: int
    code: ErrorCode
    versions: tuple[int, int] | None = None
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Done:
    """RDMA_DONE, which nobody sends any more and which is ignored (section 4.6.2)."""

    xid: int
    credits: int


class HeaderError(XdrError):
    """A header that breaks a rule; `code` is what the responder calls it."""

    def __init__(self, what: str, at: int, code: ErrorCode = ErrorCode.ERR_CHUNK) -> None:
        super().__init__(what, at)
        self.code = code


def decode_header(
    data: bytes, limits: Limits | None = None
) -> tuple[Header | ErrorHeader | Done, int]:
    """The header that a message starts with, and where it ends. Raises `HeaderError`.

    Behind an RDMA_MSG is the RPC message; what is behind an RDMA_ERROR or RDMA_DONE is of no use.
    """
    decoder = Decoder(data)
    try:
        header = _decode(decoder, limits or Limits())
        if isinstance(header, Header) and header.proc == Proc.RDMA_NOMSG:
            decoder.finish()
    except HeaderError:
        raise
    except XdrError as wrong:
        raise HeaderError(wrong.what, wrong.at) from None
    return header, decoder.pos


def encode_header(header: Header | ErrorHeader) -> bytes:
    """The bytes of a header; `XdrError` for one that no peer would take."""
    out = Encoder()
    if isinstance(header, ErrorHeader):
        _encode_error(out, header)
        return bytes(out)
    wrong = _credits_error(header.credits) or _placement_error(header)
    if wrong:
        raise XdrError(wrong, 0)
    out.u32(header.xid, VERSION, header.credits, header.proc)
    reads = [(chunk.position, segment) for chunk in header.reads for segment in chunk.segments]
    out.chain(reads, _encode_read)
    out.chain(header.writes, _encode_chunk)
    out.optional(header.reply, _encode_chunk)
    return bytes(out)


def error_reply(data: bytes, wrong: HeaderError, granted: int) -> bytes | None:
    """What a responder that grants so many credits sends for a message that was `wrong`.

    None: nothing. An RDMA_ERROR is never answered, or both sides could go on forever; what is too
    short to name the call it stands for cannot be.
    """
    if 16 > len(data) or int.from_bytes(data[12:16], "big") == ERROR:
        return None
    xid, version = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    versions = (VERSION, VERSION) if wrong.code == ErrorCode.ERR_VERS else None
    return encode_header(ErrorHeader(xid, granted, wrong.code, versions, version))


def _decode(decoder: Decoder, limits: Limits) -> Header | ErrorHeader | Done:
    xid, version, granted, proc = (decoder.u32() for _ in range(4))
    if proc == ERROR:  # Of whatever version: it may be the answer to one that the peer has not.
        return _decode_error(decoder, xid, version, granted)
    if version != VERSION:
        raise HeaderError(f"RPC-over-RDMA version {version}", 4, ErrorCode.ERR_VERS)
    if proc == DONE:
        return Done(xid, granted)
    if proc not in (MSG, NOMSG):  # section 4.6.1
        what = "RDMA_MSGP is not used" if proc == MSGP else f"RPC-over-RDMA procedure {proc}"
        raise HeaderError(what, 12)
    header = _decode_lists(decoder, Header(xid, granted, Proc(proc)), limits)
    wrong = _placement_error(header)
    if wrong:
        raise HeaderError(wrong, 16)
    if proc == MSG and Decoder(decoder.data, decoder.pos).u32() != xid:  # section 4.5.2
        raise HeaderError("the RPC message has another XID than its header", decoder.pos)
    return header


def _decode_error(decoder: Decoder, xid: int, version: int, granted: int) -> ErrorHeader:
    code = decoder.enum(ErrorCode)
    versions = (decoder.u32(), decoder.u32()) if code == ErrorCode.ERR_VERS else None
    return ErrorHeader(xid, granted, code, versions, version)


def _encode_error(out: Encoder, header: ErrorHeader) -> None:
    wrong = _credits_error(header.credits)
    if wrong:
        raise XdrError(wrong, 8)
    out.u32(header.xid, header.version, header.credits, ERROR, header.code)
    if (header.versions is not None) != (header.code == ErrorCode.ERR_VERS):
        raise XdrError(f"versions do not go with {header.code.name}", len(out))
    if header.versions is not None:
        out.u32(*header.versions)


def _credits_error(value: int) -> str | None:
    # Section 3.3.1: a peer that may send nothing can never ask for more. The rest is not refused:
    # one that asks for 0 gets what there is; one that is granted 0 may take it for 1, as Linux.
    return None if value else "0 credits"


def _placement_error(header: Header) -> str | None:
    """What is wrong with where the RPC message is said to be (sections 3.5 and 4.5.2)."""
    wrong = position_error(header.reads)
    if wrong:
        return wrong
    has_zero = bool(header.reads) and header.reads[0].position == 0
    if header.proc == Proc.RDMA_MSG:
        return "RDMA_MSG with a read chunk at position 0" if has_zero else None
    if has_zero or (not header.reads and header.reply):
        return None
    return "RDMA_NOMSG without a chunk that the message could be in"


class _Budget:
    """What is left of the limits while one header is decoded."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._segments = limits.segments
        self._bytes = 0

    def next_list(self) -> None:
        self._bytes = self._limits.list_bytes

    def segment(self, decoder: Decoder) -> Segment:
        start = decoder.pos
        segment = Segment(decoder.u32(), decoder.u32(), decoder.u64())
        if segment.length > _ADDRESSES - segment.offset:
            raise HeaderError("segment reaches beyond the last address", start)
        if segment.length > self._bytes:
            raise HeaderError(f"list of more than {self._limits.list_bytes} bytes", start)
        if not self._segments:
            raise HeaderError(f"more than {self._limits.segments} segments", start)
        self._bytes -= segment.length
        self._segments -= 1
        return segment

    def read(self, decoder: Decoder) -> tuple[int, Segment]:
        return decoder.u32(), self.segment(decoder)

    def chunk(self, decoder: Decoder) -> tuple[Segment, ...]:
        return tuple(decoder.array(self.segment, self._segments, _SEGMENT_BYTES))


def _decode_lists(decoder: Decoder, header: Header, limits: Limits) -> Header:
    budget = _Budget(limits)
    start = decoder.pos
    budget.next_list()
    chunks: dict[int, list[Segment]] = {}
    for position, segment in decoder.chain(budget.read):
        chunks.setdefault(position, []).append(segment)
    if len(chunks) > limits.chunks:
        raise HeaderError(f"more than {limits.chunks} read chunks", start)
    # Segments of a chunk come in order; that chunks do is nowhere asked for.
    reads = tuple(ReadChunk(at, tuple(chunks[at])) for at in sorted(chunks))
    budget.next_list()
    writes = tuple(decoder.chain(budget.chunk, limits.chunks))
    budget.next_list()
    reply = decoder.optional(budget.chunk)
    return Header(header.xid, header.credits, header.proc, reads, writes, reply)


def _encode_segment(out: Encoder, segment: Segment) -> None:
    out.u32(segment.handle, segment.length)
    out.u64(segment.offset)


def _encode_read(out: Encoder, read: tuple[int, Segment]) -> None:
    out.u32(read[0])
    _encode_segment(out, read[1])


def _encode_chunk(out: Encoder, chunk: tuple[Segment, ...]) -> None:
    out.array(chunk, _encode_segment)
