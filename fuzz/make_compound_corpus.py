# SPDX-License-Identifier: BSD-2-Clause
"""Makes the seed corpus of fuzz_compound: python fuzz/make_compound_corpus.py"""

from __future__ import annotations

import struct
from pathlib import Path

from livedma.nfs.numbers import Op
from livedma.rpc.message import AUTH_NONE, AuthSys, Call, OpaqueAuth, encode_call
from livedma.rpc.xdr import Encoder

FOLDER = Path(__file__).resolve().parent / "corpus" / "compound"
LINUX_WRITE = (1 << 3 | 1 << 4, 1 << 13 | 1 << 20 | 1 << 21)  # what its GETATTR asks for


def head(operations: int, *, tag: bytes = b"", minor: int = 1) -> Encoder:
    out = Encoder()
    out.opaque(tag)
    out.u32(minor, operations, Op.SEQUENCE)
    out.fixed(bytes(range(16)), 16)
    out.u32(1, 0, 0, 0, Op.PUTFH)
    out.opaque(b"a handle of some length")
    return out


def stateid(out: Encoder) -> None:
    out.u32(1)
    out.fixed(b"stateid other"[:12], 12)


def read(*, tag: bytes = b"", minor: int = 1) -> Encoder:
    out = head(3, tag=tag, minor=minor)
    out.u32(Op.READ)
    stateid(out)
    out.u64(4096)
    out.u32(100)
    return out


def write(data: bytes | None, stable: int, attributes: tuple[int, ...]) -> tuple[Encoder, int]:
    """The arguments, and where the data is missing."""
    out = head(4)
    out.u32(Op.WRITE)
    stateid(out)
    out.u64(0)
    out.u32(stable)
    if data is None:
        out.u32(5000)
    else:
        out.opaque(data)
    position = len(out)
    out.u32(Op.GETATTR, len(attributes), *attributes)
    return out, position


def commit() -> Encoder:
    out = head(3)
    out.u32(Op.COMMIT)
    out.u64(0)
    out.u32(0)
    return out


def seed(
    arguments: Encoder,
    *,
    position: int = 0,
    read_length: int = 0,
    credential: OpaqueAuth | AuthSys = AUTH_NONE,
) -> bytes:
    message = encode_call(Call(7, 100003, 4, 1, credential), bytes(arguments))
    if position:
        position += len(message) - len(arguments)
    return struct.pack(">IQ", position, read_length) + message


def main() -> None:
    user = AuthSys(1, b"machine", 1000, 1000, (1, 2, 3))
    chunked, position = write(None, 0, LINUX_WRITE)
    every = (0x0010001A, 0x0030A00A, 0)
    seeds = {
        "read": seed(read()),
        "read-user": seed(read(), credential=user),
        "read-tag": seed(read(tag=b"tag", minor=2)),
        "write": seed(write(b"hello", 2, LINUX_WRITE)[0], credential=user),
        "write-attributes": seed(write(b"hello!!!", 0, every)[0]),
        "write-chunk": seed(chunked, position=position, read_length=5000, credential=user),
        "commit": seed(commit(), credential=user),
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in seeds.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
