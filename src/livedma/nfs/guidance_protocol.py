# SPDX-License-Identifier: BSD-2-Clause
"""Tells clients where a server wants their sessions, by an RPC program beside NFS.

It is served on RDMA connections, with a number of the range that RFC 5531 (section 13.1) leaves to
sites. A client asks with ADVISE from time to time, on each of its connections, and says with REPORT
what it did. docs/moving.md has the whole protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from livedma.rpc.xdr import Decoder, Encoder

__all__ = [
    "PROGRAM",
    "VERSION",
    "Advice",
    "Instruction",
    "Procedure",
    "Progress",
    "Report",
    "Verdict",
]

PROGRAM = 0x2C7D0001
VERSION = 1
WORDS_MOST = 256


class Procedure(IntEnum):
    NULL = 0
    ADVISE = 1
    REPORT = 2


class Instruction(IntEnum):
    """Names what a connection's client is asked to do."""

    STAY = 0  # do nothing
    SPREAD = 1  # open another connection, and make new sessions there
    MIGRATE = 2  # open another one, move all sessions there, and close this one


class Progress(IntEnum):
    """Says what a client has done about an instruction."""

    OPENED = 1  # the other connection exists
    MOVING = 2  # `moved` sessions use it
    DONE = 3  # all sessions use it, and this connection will be closed
    REFUSED = 4  # it could not be done; all is as before


class Verdict(IntEnum):
    """Says how the server takes a report."""

    TAKEN = 0
    STALE = 1  # its instruction does not exist, or not any more
    WRONG = 2  # the report cannot be true


@dataclass(frozen=True, slots=True)
class Advice:
    """Tells a client what is wanted. serial: a new one for each instruction, 0 if there was none.
    ask_again_ms: the earliest."""

    serial: int
    instruction: Instruction
    ask_again_ms: int

    def encode(self) -> bytes:
        out = Encoder()
        out.u32(self.serial)
        out.enum(self.instruction)
        out.u32(self.ask_again_ms)
        return bytes(out)

    @classmethod
    def decode(cls, decoder: Decoder) -> Advice:
        """Decodes it; raises XdrError."""
        ret = cls(decoder.u32(), decoder.enum(Instruction), decoder.u32())
        decoder.finish()
        return ret


@dataclass(frozen=True, slots=True)
class Report:
    """Reports about the instruction with that serial. words: for people."""

    serial: int
    progress: Progress
    moved: int = 0
    sessions: int = 0
    words: str = ""

    def encode(self) -> bytes:
        out = Encoder()
        out.u32(self.serial)
        out.enum(self.progress)
        out.u32(self.moved, self.sessions)
        out.string(self.words.encode()[:WORDS_MOST].decode(errors="ignore"), WORDS_MOST)
        return bytes(out)

    @classmethod
    def decode(cls, decoder: Decoder) -> Report:
        """Raises XdrError."""
        ret = cls(
            decoder.u32(),
            decoder.enum(Progress),
            decoder.u32(),
            decoder.u32(),
            decoder.string(WORDS_MOST),
        )
        decoder.finish()
        return ret
