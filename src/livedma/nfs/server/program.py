# SPDX-License-Identifier: BSD-2-Clause
"""Serves NFS version 4 as an RPC program: NULL and COMPOUND."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from livedma.nfs.numbers import PROGRAM, VERSION, Procedure
from livedma.nfs.server import compound
from livedma.nfs.server.context import Credential
from livedma.nfs.server.ops import served
from livedma.nfs.server.parts import Server
from livedma.rpc.message import (
    Accepted,
    AcceptStatus,
    AuthSys,
    Call,
    Served,
    admit,
    encode_reply,
    encode_success,
    is_reply,
)
from livedma.rpc.service import Connection, Part
from livedma.rpc.xdr import XdrError

__all__ = ["NfsProgram"]

_log = logging.getLogger(__name__)

_SERVED: Served = {PROGRAM: {VERSION: len(Procedure)}}


class NfsProgram:
    """Implements `Program` for transports. Any number of threads may call it at once."""

    def __init__(self, server: Server) -> None:
        self._server = server
        served.load()

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        """Returns the reply to a whole RPC message; None if it gets none."""
        if is_reply(message):
            self._server.callbacks.replied(connection, message)
            return None
        admitted = admit(message, _SERVED)
        if admitted is None:
            return None
        if not isinstance(admitted, tuple):
            return [encode_reply(admitted)]
        call, decoder = admitted
        if call.procedure == Procedure.NULL:
            return [encode_success(call.xid)]
        try:
            results = compound.serve(
                self._server, connection, _credential(call), decoder, len(message)
            )
        except XdrError:
            return [encode_reply(Accepted(call.xid, AcceptStatus.GARBAGE_ARGS))]
        except Exception:
            _log.exception("a COMPOUND failed")
            return [encode_reply(Accepted(call.xid, AcceptStatus.SYSTEM_ERR))]
        return [encode_success(call.xid), *results]

    def closed(self, connection: Connection) -> None:
        """Tells the sessions that the connection has ended."""
        self._server.sessions.connection_closed(connection)


def _credential(call: Call) -> Credential:
    if isinstance(call.credential, AuthSys):
        sent = call.credential
        return Credential(sent.uid, sent.gid, sent.gids, sent.machine)
    return Credential(None, None)
