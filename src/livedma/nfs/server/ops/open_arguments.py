# SPDX-License-Identifier: BSD-2-Clause
"""Decodes and checks the arguments of OPEN (RFC 8881, 18.16.1) before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import VERIFIER_BYTES, Claim, CreateMode, NfsError, OpenType, Status, Want
from livedma.nfs.server.attributes import EXCLUSIVE_SETTABLE, SETTABLE
from livedma.nfs.server.attributes_set import decode_settings
from livedma.nfs.server.ops.lock import decode_owner
from livedma.nfs.server.state.shares import BOTH, Share
from livedma.nfs.server.store import CreateHow, Settings
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context

__all__ = ["Creation", "OpenArguments", "decode_share"]

_WANT = 0xFF00
_WHEN = 0x30000  # signal or push a delegation later
_SINCE_RFC_9754 = 0x300000  # times with a delegation, or a delegation instead of an open


@dataclass(frozen=True, slots=True)
class Creation:
    """Holds the openflag4 of an OPEN that may make a file."""

    how: CreateHow
    settings: Settings

    @staticmethod
    def decode(ctx: Context, args: Decoder) -> Creation | None:
        """Returns None if the file has to exist."""
        if args.enum(OpenType) == OpenType.NOCREATE:
            return None
        mode = args.enum(CreateMode)
        is_exclusive = mode in (CreateMode.EXCLUSIVE, CreateMode.EXCLUSIVE_1)
        how = CreateHow(mode, args.fixed(VERIFIER_BYTES) if is_exclusive else b"")
        if mode == CreateMode.EXCLUSIVE:
            return Creation(how, Settings())
        settable = EXCLUSIVE_SETTABLE if is_exclusive else SETTABLE
        return Creation(how, decode_settings(args, ctx.server, ctx.minor, settable))


@dataclass(frozen=True, slots=True)
class OpenArguments:
    """Holds the arguments of OPEN. name: of a claim in a directory. delegation: the type that
    CLAIM_PREVIOUS says there was. delegated: the delegation by which the file is opened, if there
    is one."""

    share: Share
    want: Want
    owner: bytes
    creation: Creation | None
    claim: Claim
    name: bytes | None
    delegation: int
    delegated: Stateid | None

    @staticmethod
    def decode(ctx: Context, args: Decoder) -> OpenArguments:
        """Decodes all arguments; raises INVAL if they contradict each other."""
        args.u32()  # A seqid, which sessions have made needless.
        access, deny = args.u32(), args.u32()
        owner = decode_owner(args)
        creation = Creation.decode(ctx, args)
        claim = args.enum(Claim)
        delegation = args.u32() if claim == Claim.PREVIOUS else 0
        is_delegated = claim in (Claim.DELEGATE_CUR, Claim.DELEG_CUR_FH)
        delegated = Stateid.decode(args) if is_delegated else None
        is_named = claim in (Claim.NULL, Claim.DELEGATE_CUR, Claim.DELEGATE_PREV)
        name = args.opaque() if is_named else None
        share, want = decode_share(access, deny)
        if creation is not None and claim != Claim.NULL:
            raise NfsError(Status.INVAL)
        return OpenArguments(share, want, owner, creation, claim, name, delegation, delegated)


def decode_share(access: int, deny: int) -> tuple[Share, Want]:
    """Decodes the share bits of OPEN and OPEN_DOWNGRADE; INVAL if they mean nothing."""
    extra = access & ~(BOTH | _WANT | _WHEN | _SINCE_RFC_9754)
    if extra or not access & BOTH or deny & ~BOTH:
        raise NfsError(Status.INVAL)
    try:
        want = Want(access & _WANT)
    except ValueError:
        raise NfsError(Status.INVAL) from None
    return Share(access & BOTH, deny), want
