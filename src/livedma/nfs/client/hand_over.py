# SPDX-License-Identifier: BSD-2-Clause
"""Describes what another program needs to go on with a session."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.client.codec.session import ChannelLimits

__all__ = ["HandedOver", "HandedSlot"]


@dataclass(frozen=True, slots=True)
class HandedSlot:
    """Describes a slot that is free: its number, and the sequence of the next call in it."""

    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Holds all that another program needs to go on using a session."""

    session_id: bytes
    client_id: int
    minor: int
    slots: tuple[HandedSlot, ...]
    limits: ChannelLimits
    lease_s: float
