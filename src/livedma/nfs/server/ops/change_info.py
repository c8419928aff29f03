# SPDX-License-Identifier: BSD-2-Clause
"""Codes change_info4: what an operation did to a directory."""

from __future__ import annotations

from livedma.nfs.server.store import ChangeInfo
from livedma.rpc.xdr import Encoder

__all__ = ["encode_change"]


def encode_change(out: Encoder, change: ChangeInfo) -> None:
    """Encodes it as not atomic: other users may have changed the directory in between."""
    out.boolean(False)
    out.u64(change.before)
    out.u64(change.after)
