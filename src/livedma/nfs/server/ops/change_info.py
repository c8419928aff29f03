"""change_info4: what an operation did to a directory."""

from __future__ import annotations

from livedma.nfs.store import ChangeInfo
from livedma.rpc.xdr import Encoder

__all__ = ["encode_change"]


def encode_change(out: Encoder, change: ChangeInfo) -> None:
    """Says that others may have changed it in between."""
    out.boolean(False)
    out.u64(change.before)
    out.u64(change.after)
