# SPDX-License-Identifier: BSD-2-Clause
"""Codes ONC RPC version 2 (RFC 5531): the headers of calls and replies, and which calls are refused
how.

`decode_call` and `decode_reply` leave their decoder at the arguments or results; `encode_call` and
`encode_reply` take these encoded. A server passes each message to `admit` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from livedma.rpc.xdr import Decoder, Encoder, XdrError
from livedma.wire.rpc import AUTH_MOST, CALL, GIDS_MOST, MACHINE_MOST, REPLY
from livedma.wire.rpc import VERSION as RPC_VERSION

__all__ = [
    "AUTH_NONE",
    "AcceptStatus",
    "Accepted",
    "AuthStatus",
    "AuthSys",
    "BadCall",
    "Call",
    "Denied",
    "Flavor",
    "OpaqueAuth",
    "RejectStatus",
    "Reply",
    "Served",
    "admit",
    "decode_call",
    "decode_reply",
    "encode_call",
    "encode_reply",
    "encode_success",
    "is_reply",
]


class Flavor(IntEnum):
    """Names the flavours of authentication that are understood here."""

    AUTH_NONE = 0
    AUTH_SYS = 1


class AcceptStatus(IntEnum):
    """Says what came of a call that was accepted."""

    SUCCESS = 0
    PROG_UNAVAIL = 1
    PROG_MISMATCH = 2
    PROC_UNAVAIL = 3
    GARBAGE_ARGS = 4
    SYSTEM_ERR = 5


class RejectStatus(IntEnum):
    """Says why a call was denied."""

    RPC_MISMATCH = 0
    AUTH_ERROR = 1


class AuthStatus(IntEnum):
    """Says why credentials were refused: those of RFC 5531 that a server here gives, or may get."""

    AUTH_OK = 0
    AUTH_BADCRED = 1
    AUTH_REJECTEDCRED = 2
    AUTH_BADVERF = 3
    AUTH_REJECTEDVERF = 4
    AUTH_TOOWEAK = 5
    AUTH_INVALIDRESP = 6
    AUTH_FAILED = 7


@dataclass(frozen=True, slots=True)
class OpaqueAuth:
    """Holds a credential or verifier of any flavour; `body` has at most 400 bytes."""

    flavor: int
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class AuthSys:
    """Holds a credential of AUTH_SYS (appendix A). A machine name need not be UTF-8."""

    stamp: int
    machine: bytes
    uid: int
    gid: int
    gids: tuple[int, ...] = ()


AUTH_NONE = OpaqueAuth(Flavor.AUTH_NONE)


@dataclass(frozen=True, slots=True)
class Call:
    """Holds the header of a call."""

    xid: int
    program: int
    version: int
    procedure: int
    credential: OpaqueAuth | AuthSys = AUTH_NONE
    verifier: OpaqueAuth = AUTH_NONE


@dataclass(frozen=True, slots=True)
class Accepted:
    """Holds the header of a reply to a call that was accepted.

    `versions`: the lowest and highest version of the program, with PROG_MISMATCH alone.
    """

    xid: int
    status: AcceptStatus = AcceptStatus.SUCCESS
    verifier: OpaqueAuth = AUTH_NONE
    versions: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """Holds a reply that denies a call.

    `versions`: those of RPC itself, with RPC_MISMATCH alone; `auth_status`: an `AuthStatus` or a
    number that has no name here, with AUTH_ERROR alone.
    """

    xid: int
    status: RejectStatus
    versions: tuple[int, int] | None = None
    auth_status: int | None = None


Reply = Accepted | Denied

# program -> version -> the number of its procedures, which count from 0.
Served = Mapping[int, Mapping[int, int]]


class BadCall(XdrError):
    """Reports that the message is no call that can be served; `reply` answers it (None: it gets no
    answer).
    """

    def __init__(self, wrong: XdrError, reply: Denied | None) -> None:
        super().__init__(wrong.what, wrong.at)
        self.reply = reply


def decode_call(decoder: Decoder) -> Call:
    """Decodes the header of a call. Raises `BadCall` if it is none, or of another RPC version."""
    try:
        xid = decoder.u32()
        kind = decoder.u32()
        if kind != CALL:
            raise XdrError(f"message type {kind} is no call", decoder.pos - 4)
        version = decoder.u32()
    except XdrError as wrong:
        raise BadCall(wrong, None) from None
    if version != RPC_VERSION:
        other = XdrError(f"RPC version {version}", decoder.pos - 4)
        raise BadCall(other, _rpc_mismatch(xid))
    try:
        program, program_version, procedure = decoder.u32(), decoder.u32(), decoder.u32()
    except XdrError as wrong:  # The program is not known, so that no reply fits.
        raise BadCall(wrong, None) from None
    try:
        credential = _decode_credential(decoder)
    except XdrError as wrong:
        raise BadCall(wrong, _auth_error(xid, AuthStatus.AUTH_BADCRED)) from None
    try:
        verifier = _decode_auth(decoder)
    except XdrError as wrong:
        raise BadCall(wrong, _auth_error(xid, AuthStatus.AUTH_BADVERF)) from None
    return Call(xid, program, program_version, procedure, credential, verifier)


def encode_call(call: Call, arguments: bytes = b"") -> bytes:
    """Encodes a whole call."""
    out = Encoder()
    out.u32(call.xid, CALL, RPC_VERSION, call.program, call.version, call.procedure)
    if isinstance(call.credential, AuthSys):
        _encode_auth(out, OpaqueAuth(Flavor.AUTH_SYS, _encode_auth_sys(call.credential)))
    else:
        _encode_auth(out, call.credential)
    _encode_auth(out, call.verifier)
    out.raw(arguments)
    return bytes(out)


def decode_reply(decoder: Decoder) -> Reply:
    """Decodes the header of a reply; results follow if it is `Accepted` with SUCCESS."""
    xid = decoder.u32()
    kind = decoder.u32()
    if kind != REPLY:
        raise XdrError(f"message type {kind} is no reply", decoder.pos - 4)
    is_denied = decoder.boolean()
    if is_denied:
        reject = decoder.enum(RejectStatus)
        if reject == RejectStatus.RPC_MISMATCH:
            return Denied(xid, reject, versions=_decode_versions(decoder))
        return Denied(xid, reject, auth_status=decoder.u32())
    verifier = _decode_auth(decoder)
    status = decoder.enum(AcceptStatus)
    if status == AcceptStatus.PROG_MISMATCH:
        return Accepted(xid, status, verifier, _decode_versions(decoder))
    return Accepted(xid, status, verifier)


def is_reply(message: bytes) -> bool:
    """Tells whether a message says that it is a reply."""
    return message[4:8] == REPLY.to_bytes(4, "big")


def encode_reply(reply: Reply, results: bytes = b"") -> bytes:
    """Encodes a whole reply; only one with SUCCESS has results."""
    out = Encoder()
    is_denied = isinstance(reply, Denied)
    out.u32(reply.xid, REPLY, is_denied)
    if isinstance(reply, Accepted):
        _encode_auth(out, reply.verifier)
    out.enum(reply.status)
    is_mismatch = reply.status == (
        RejectStatus.RPC_MISMATCH if is_denied else AcceptStatus.PROG_MISMATCH
    )
    if (reply.versions is not None) != is_mismatch:
        raise XdrError(f"versions do not go with {reply.status.name}", len(out))
    if reply.versions is not None:
        out.u32(*reply.versions)
    if isinstance(reply, Denied):
        if (reply.auth_status is not None) == is_mismatch:
            raise XdrError(f"auth_status does not go with {reply.status.name}", len(out))
        if reply.auth_status is not None:
            out.u32(reply.auth_status)
    if results and (is_denied or reply.status != AcceptStatus.SUCCESS):
        raise XdrError(f"results do not go with {reply.status.name}", len(out))
    out.raw(results)
    return bytes(out)


def admit(message: bytes, served: Served) -> tuple[Call, Decoder] | Reply | None:
    """Checks a message to a server of `served`. Returns the call with a decoder at its arguments,
    the reply that refuses it, or None if it gets no answer.
    """
    decoder = Decoder(message)
    try:
        call = decode_call(decoder)
    except BadCall as wrong:
        return wrong.reply
    refused = _refusal(call, served)
    return (call, decoder) if refused is None else refused


def _refusal(call: Call, served: Served) -> Reply | None:
    # Credentials are checked first, as in Linux: strangers need not learn what is served.
    if isinstance(call.credential, AuthSys):
        if call.verifier.flavor != Flavor.AUTH_NONE:
            return _auth_error(call.xid, AuthStatus.AUTH_BADVERF)
    elif call.credential.flavor != Flavor.AUTH_NONE:
        return _auth_error(call.xid, AuthStatus.AUTH_BADCRED)
    versions = served.get(call.program)
    if not versions:
        return Accepted(call.xid, AcceptStatus.PROG_UNAVAIL)
    procedures = versions.get(call.version)
    if procedures is None:
        spread = min(versions), max(versions)
        return Accepted(call.xid, AcceptStatus.PROG_MISMATCH, versions=spread)
    if call.procedure >= procedures:
        return Accepted(call.xid, AcceptStatus.PROC_UNAVAIL)
    return None


def _rpc_mismatch(xid: int) -> Denied:
    return Denied(xid, RejectStatus.RPC_MISMATCH, versions=(RPC_VERSION, RPC_VERSION))


def _auth_error(xid: int, status: AuthStatus) -> Denied:
    return Denied(xid, RejectStatus.AUTH_ERROR, auth_status=status)


def _decode_versions(decoder: Decoder) -> tuple[int, int]:
    return decoder.u32(), decoder.u32()


def _decode_auth(decoder: Decoder) -> OpaqueAuth:
    return OpaqueAuth(decoder.u32(), decoder.opaque(AUTH_MOST))


def _encode_auth(out: Encoder, auth: OpaqueAuth) -> None:
    out.u32(auth.flavor)
    out.opaque(auth.body, AUTH_MOST)


def _decode_credential(decoder: Decoder) -> OpaqueAuth | AuthSys:
    start = decoder.pos + 8
    auth = _decode_auth(decoder)
    if auth.flavor != Flavor.AUTH_SYS:
        return auth
    body = Decoder(auth.body)
    try:
        ret = AuthSys(
            stamp=body.u32(),
            machine=body.opaque(MACHINE_MOST),
            uid=body.u32(),
            gid=body.u32(),
            gids=tuple(body.array(Decoder.u32, GIDS_MOST)),
        )
        body.finish()
    except XdrError as wrong:
        raise XdrError(f"{wrong.what} of the credential", start + wrong.at) from None
    return ret


def _encode_auth_sys(credential: AuthSys) -> bytes:
    body = Encoder()
    body.u32(credential.stamp)
    body.opaque(credential.machine, MACHINE_MOST)
    body.u32(credential.uid, credential.gid)
    body.array(credential.gids, Encoder.u32, GIDS_MOST)
    return bytes(body)


_SUCCESS = encode_reply(Accepted(0))[4:]


def encode_success(xid: int) -> bytes:
    """Encodes what stands in front of the results of a call; nearly every reply begins with it."""
    return xid.to_bytes(4, "big") + _SUCCESS
