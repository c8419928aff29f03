# SPDX-License-Identifier: BSD-2-Clause
"""Defines the names of transports.

Each member is its string: `"tcp" == TransportKind.TCP`, and either may be given for the other.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TransportKind"]


class TransportKind(StrEnum):
    """Names what carries calls to a server, and its replies."""

    TCP = "tcp"
    RDMA = "rdma"
