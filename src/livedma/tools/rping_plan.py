# SPDX-License-Identifier: BSD-2-Clause
"""Reads the options of rping, without a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["LARGEST", "SMALLEST", "Options"]

SMALLEST, LARGEST = 23, 65535  #: bytes of data: a line's start and its end, and rping's limit


@dataclass(frozen=True)
class Options:
    size: int = 64
    count: int = 0  #: 0: without end
    mtu: int | None = None  #: of RDMA; None: the largest of the client's interface
    validates: bool = False
    show: Callable[[str], None] = lambda _: None  #: called with each ping's data
    debug: Callable[[str], None] = lambda _: None  #: called with each step
