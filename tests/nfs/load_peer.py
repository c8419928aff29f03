# SPDX-License-Identifier: BSD-2-Clause
"""An NFS server of one file for tests of the load: READ and WRITE, and lies when told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.rpc.records import encode_record

from livedma.nfs.numbers import Op, Status
from livedma.rpc.message import Accepted, Call, decode_call, encode_call, encode_reply
from livedma.rpc.record import RecordSplitter
from livedma.rpc.xdr import Decoder, Encoder

SESSION = b"session of tests"
HANDLE = b"the file"
STATEID = b"the open's state"
CREDENTIAL = encode_call(Call(0, 0, 0, 0))[24:]


@dataclass
class Request:
    """What a call asks for."""

    xid: int
    sequence: int
    slot: int
    highest: int
    op: Op
    offset: int
    count: int
    data: bytes | None = None


@dataclass
class Answers:
    """The server without a transport. Everything may be replaced to make it lie.

    status: of an operation, by the request; edit: has the last word on a reply.
    """

    file: bytearray
    target: int = 63
    forgets_slots: bool = False
    most: int = 1 << 20  #: bytes that one READ or WRITE does
    status: Callable[[Request], tuple[Op, Status] | None] = lambda _: None
    keeps: Callable[[Request], bool] = lambda _: True
    edit: Callable[[Request, bytes], bytes] = lambda _, reply: reply
    sequences: dict[int, int] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    misordered: int = 0

    def parse(self, message: bytes, placed: bytes | None = None) -> Request:
        """placed: data that came by a read chunk, behind the message."""
        decoder = Decoder(message)
        call = decode_call(decoder)
        assert (call.program, call.version, call.procedure) == (100003, 4, 1)
        assert decoder.opaque() == b""
        assert (decoder.u32(), decoder.u32()) == (1, 3)  # minor version, operations
        assert decoder.enum(Op) == Op.SEQUENCE
        assert decoder.fixed(16) == SESSION
        sequence, slot, highest = decoder.u32(), decoder.u32(), decoder.u32()
        assert decoder.u32() == 0
        assert decoder.enum(Op) == Op.PUTFH
        assert decoder.opaque() == HANDLE
        op = decoder.enum(Op)
        assert decoder.fixed(16) == STATEID
        offset = decoder.u64()
        data = None
        if op == Op.WRITE:
            decoder.u32()
        if op == Op.WRITE and placed is None:
            data = decoder.opaque()
            count = len(data)
        else:
            count = decoder.u32()
            data = placed
        decoder.finish()
        request = Request(call.xid, sequence, slot, highest, op, offset, count, data)
        self.requests.append(request)
        return request

    def reply(self, request: Request, *, places: bool = False) -> tuple[bytes, bytes]:
        """The reply, and the data that it lacks, if data is placed."""
        out, placed = Encoder(), b""
        expected = self.sequences.get(request.slot, 0) + 1
        if request.sequence != expected:
            self.misordered += 1
            failed: tuple[Op, Status] | None = (Op.SEQUENCE, Status.SEQ_MISORDERED)
        else:
            failed = self.status(request)
        count = 1 if failed and failed[0] == Op.SEQUENCE else 3
        out.u32(failed[1] if failed else 0)
        out.opaque(b"")
        out.u32(count)
        out.u32(Op.SEQUENCE)
        if failed and failed[0] == Op.SEQUENCE:
            out.u32(failed[1])
        else:
            self.sequences[request.slot] = request.sequence
            out.u32(0)
            out.fixed(SESSION, 16)
            out.u32(request.sequence, request.slot, 63, self.target, 0)
            out.u32(Op.PUTFH, 0, request.op)
            out.u32(failed[1] if failed else 0)
            if not failed:
                placed = self._perform(request, out, places)
            self._forget(request)
        whole = encode_reply(Accepted(request.xid), bytes(out))
        return self.edit(request, whole), placed

    def _perform(self, request: Request, out: Encoder, places: bool) -> bytes:
        count = min(request.count, self.most)
        end = request.offset + count
        if request.op == Op.WRITE:
            assert request.data is not None
            if self.keeps(request):
                self.file[request.offset : end] = request.data[:count]
            out.u32(count, 0)
            out.fixed(b"verifier", 8)
            return b""
        data = bytes(self.file[request.offset : end])
        out.u32(0, len(data)) if places else (out.u32(0), out.opaque(data))
        return data if places else b""

    def _forget(self, request: Request) -> None:
        """Slots that the client says it will not use any more."""
        if self.forgets_slots and request.highest <= self.target:
            for slot in [slot for slot in self.sequences if slot > self.target]:
                del self.sequences[slot]


class TcpPeer:
    """The server at the other end of a pair of sockets, in a thread."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.near, self._far = socket.socketpair()
        self.near.setblocking(False)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.extra = b""  #: sent in front of the next reply
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        splitter = RecordSplitter(1 << 22)
        while data := self._receive():
            for record in splitter.feed(data):
                self.may_answer.wait(20)
                if Decoder(record[20:24]).u32() == 0:  # NULL
                    reply = encode_reply(Accepted(int.from_bytes(record[:4], "big")))
                else:
                    reply, _ = self.answers.reply(self.answers.parse(record))
                extra, self.extra = self.extra, b""
                self._send(extra + encode_record(reply))

    def _receive(self) -> bytes:
        try:
            return self._far.recv(1 << 18)
        except OSError:
            return b""

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._far.sendall(data)

    def cut(self) -> None:
        self._far.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.cut()
        self._thread.join(20)
        self._far.close()
        self.near.close()
