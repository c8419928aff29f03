# SPDX-License-Identifier: BSD-2-Clause
"""Makes XDR values of a shape, so that every operation of the tables can be sent to a judge."""

from __future__ import annotations

import random
import struct

from livedma.wire.shapes import ARRAY, DATA, FIXED, LIST, OPAQUE, Shape


def word(value: int) -> bytes:
    return struct.pack(">I", value)


def opaque(data: bytes) -> bytes:
    return word(len(data)) + data + bytes(-len(data) & 3)


def make(shape: Shape, rng: random.Random, case: int = 0) -> bytes:
    """A value of `shape`; `case` picks the case of its first union, others are picked by `rng`."""
    out = []
    for kind, argument in shape:
        if kind == FIXED:
            out.append(bytes(argument))
        elif kind in (OPAQUE, DATA):
            out.append(opaque(rng.randbytes(rng.randrange(8)).hex().encode()))
        elif kind == ARRAY:
            count = rng.randrange(3)
            out.append(word(count) + b"".join(make(argument, rng) for _ in range(count)))
        elif kind == LIST:
            out += [word(1) + make(argument, rng) for _ in range(rng.randrange(3))]
            out.append(word(0))
        else:
            cases, default = argument
            labels = sorted(cases) + ([9] if default is not None else [])
            label = labels[case % len(labels)] if case else rng.choice(labels)
            out.append(word(label) + make(cases.get(label, default), rng))
    return b"".join(out)


def cases(shape: Shape) -> int:
    """How many cases the widest union in `shape` has."""
    return max([len(argument[0]) + 1 for kind, argument in shape if kind > LIST], default=1)
