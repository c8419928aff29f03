# SPDX-License-Identifier: BSD-2-Clause
"""Reads the features of an interface, as `ethtool -k` shows them (SIOCETHTOOL, linux/ethtool.h)."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Feature", "features"]

_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_SET_INFO, _GET_FEATURES = 0x1B, 0x37, 0x3A
_FEATURES_SET = 4  # ETH_SS_FEATURES
_NAME_BYTES = 32  # ETH_GSTRING_LEN
_BITS = 32  # of a block
_BLOCK = struct.Struct("=4I")  # available, requested, active, never changed


@dataclass(frozen=True)
class Feature:
    is_on: bool
    can_change: bool


def features(interface: str) -> dict[str, Feature]:
    """Returns the features by the kernel's names; empty: the kernel has no such interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:

        def ask(request: bytes, room: int) -> bytes:
            data = ctypes.create_string_buffer(request, len(request) + room)
            pointer = struct.pack("16sP16x", interface.encode(), ctypes.addressof(data))
            fcntl.ioctl(sock, _SIOCETHTOOL, pointer)
            return data.raw

        try:
            return _named(_names(ask), ask)
        except OSError:
            return {}


_Ask = Callable[[bytes, int], bytes]


def _names(ask: _Ask) -> list[str]:
    request = struct.pack("=IIQ", _GET_SET_INFO, 0, 1 << _FEATURES_SET)
    (count,) = struct.unpack_from("=I", ask(request, 4), len(request))
    request = struct.pack("=III", _GET_STRINGS, _FEATURES_SET, count)
    told = ask(request, count * _NAME_BYTES)[len(request) :]
    places = range(0, count * _NAME_BYTES, _NAME_BYTES)
    return [told[at : at + _NAME_BYTES].partition(b"\0")[0].decode() for at in places]


def _named(names: list[str], ask: _Ask) -> dict[str, Feature]:
    blocks = (len(names) + _BITS - 1) // _BITS
    request = struct.pack("=II", _GET_FEATURES, blocks)
    told = ask(request, blocks * _BLOCK.size)[len(request) :]
    found = {}
    for number, name in enumerate(names):
        block, bit = divmod(number, _BITS)
        available, _, active, _ = _BLOCK.unpack_from(told, block * _BLOCK.size)
        found[name] = Feature(bool(active >> bit & 1), bool(available >> bit & 1))
    return {name: feature for name, feature in found.items() if name}
