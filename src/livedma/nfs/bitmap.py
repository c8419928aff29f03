# SPDX-License-Identifier: BSD-2-Clause
"""Codes bitmap4: sets of small numbers, as numbers whose bit n stands for n."""

from __future__ import annotations

from livedma.rpc.xdr import Decoder

__all__ = ["bits", "decode_bitmap", "encode_bitmap"]

_WORDS_MOST = 64


def bits(*numbers: int) -> int:
    """Returns the set of these numbers."""
    ret = 0
    for number in numbers:
        ret |= 1 << number
    return ret


def decode_bitmap(decoder: Decoder) -> int:
    """Returns the next set; raises XdrError if it has more than 64 words."""
    ret = 0
    for place, word in enumerate(decoder.array(Decoder.u32, _WORDS_MOST)):
        ret |= word << 32 * place
    return ret


def encode_bitmap(numbers: int) -> bytes:
    """Returns a set in as few words as it needs."""
    words = (numbers.bit_length() + 31) // 32
    little = numbers.to_bytes(4 * words, "little")
    swapped = b"".join(little[at : at + 4][::-1] for at in range(0, len(little), 4))
    return words.to_bytes(4, "big") + swapped
