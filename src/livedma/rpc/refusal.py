# SPDX-License-Identifier: BSD-2-Clause
"""Tells a client why a server refuses its connection.

Over RDMA the connection manager's REJ carries private data: a magic number, whether the client
should try again, and a sentence. A client that reads it says so in its REQ, behind what RFC 8797
puts there. Others see a server that is not there, and a kernel's mount tries again for minutes.
Over TCP the first call is denied.
"""

from __future__ import annotations

from livedma.errors import LivedmaError
from livedma.rdma import cm
from livedma.rpc.client import ConnectionLost, ConnectionRefusedByServer, RpcError
from livedma.rpc.message import AuthStatus, Denied, RejectStatus, Reply
from livedma.rpc.rdma_private import PRIVATE_BYTES

__all__ = [
    "READS_REFUSALS",
    "NotAllowedError",
    "decode_refusal",
    "denied",
    "encode_refusal",
    "not_allowed",
    "not_connected",
    "raise_if_denied",
    "reads_refusals",
]

_MAGIC = b"LdmaREJ1"
_LASTING, _FOR_NOW = b"!", b"~"
_DATA_MOST = 148  # bytes of private data in a REJ
#: What a client that reads refusals adds to the private data of its REQ.
READS_REFUSALS = b"LdmaREQ1"


class NotAllowedError(LivedmaError):
    """Reports that the peer may not connect."""


def not_allowed(peer: str) -> NotAllowedError:
    """Returns the error for a peer that is in no network of --allow."""
    return NotAllowedError(f"{peer} is not in its --allow list")


def encode_refusal(why: str, *, is_lasting: bool) -> bytes:
    """Returns the private data of a REJ; a sentence that is too long is cut."""
    head = _MAGIC + (_LASTING if is_lasting else _FOR_NOW)
    text = why.encode()[: _DATA_MOST - len(head)]
    return head + text.decode(errors="ignore").encode()


def reads_refusals(data: bytes) -> bool:
    """Returns whether a client with this private data in its REQ reads why it is refused."""
    return data[PRIVATE_BYTES:].startswith(READS_REFUSALS)


def decode_refusal(data: bytes) -> tuple[str, bool] | None:
    """Returns the sentence, and whether it lasts; None if the data is no refusal of this kind."""
    head, rest = data[: len(_MAGIC)], data[len(_MAGIC) :]
    if head != _MAGIC or rest[:1] not in (_LASTING, _FOR_NOW):
        return None
    text = rest[1:].rstrip(b"\0").decode(errors="replace")
    # The sentence comes from the network and is printed on a terminal.
    return "".join(one if one.isprintable() else "?" for one in text), rest[:1] == _LASTING


def not_connected(error: cm.ConnectError) -> RpcError:
    """Returns the error that a client raises if it could not connect over RDMA."""
    found = decode_refusal(error.private_data) if isinstance(error, cm.RejectedError) else None
    if found is None:
        return ConnectionLost(str(error))
    return ConnectionRefusedByServer(found[0], is_lasting=found[1])


def denied(xid: int) -> Denied:
    """Returns the reply to the first call of a peer over TCP that may not connect. A reply has no
    place for a sentence; Linux clients show this one as "access denied".
    """
    return Denied(xid, RejectStatus.AUTH_ERROR, auth_status=AuthStatus.AUTH_TOOWEAK)


def raise_if_denied(reply: Reply) -> None:
    """Raises ConnectionRefusedByServer if the reply is one of `denied`."""
    if isinstance(reply, Denied) and reply.auth_status == AuthStatus.AUTH_TOOWEAK:
        raise ConnectionRefusedByServer(
            "it does not serve clients at this address (its --allow list, if it is livedma)",
            is_lasting=True,
        )
