# SPDX-License-Identifier: BSD-2-Clause
"""Serves NFS, and on RDMA connections also the program that tells clients where to put their
sessions.
"""

from __future__ import annotations

from collections.abc import Sequence

from livedma.nfs.guidance_protocol import PROGRAM, VERSION, Procedure, Report
from livedma.nfs.server.guidance import Guidance
from livedma.rpc.message import Accepted, AcceptStatus, Served, admit, encode_reply, is_reply
from livedma.rpc.names import TransportKind
from livedma.rpc.service import Connection, Part, Program
from livedma.rpc.xdr import Encoder, XdrError

__all__ = ["GuidedProgram"]

_SERVED: Served = {PROGRAM: {VERSION: len(Procedure)}}
_PROGRAM_AT = slice(12, 16)  # of a call
_PROGRAM = PROGRAM.to_bytes(4, "big")


class GuidedProgram:
    """Implements `Program` for transports; calls for programs other than guidance go to `other`."""

    def __init__(self, other: Program, guidance: Guidance) -> None:
        self._other, self._guidance = other, guidance

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        is_ours = connection.kind == TransportKind.RDMA and message[_PROGRAM_AT] == _PROGRAM
        if not is_ours or is_reply(message):
            return self._other(connection, message)
        admitted = admit(message, _SERVED)
        if admitted is None:
            return None
        if not isinstance(admitted, tuple):
            return [encode_reply(admitted)]
        call, decoder = admitted
        out = Encoder()
        try:
            if call.procedure == Procedure.REPORT:
                out.enum(self._guidance.report(connection, Report.decode(decoder)))
            else:
                decoder.finish()
                if call.procedure == Procedure.ADVISE:
                    out.raw(self._guidance.advise(connection).encode())
        except XdrError:
            return [encode_reply(Accepted(call.xid, AcceptStatus.GARBAGE_ARGS))]
        return [encode_reply(Accepted(call.xid), bytes(out))]

    def closed(self, connection: Connection) -> None:
        """Tells both programs that the connection has ended."""
        self._guidance.closed(connection)
        self._other.closed(connection)
