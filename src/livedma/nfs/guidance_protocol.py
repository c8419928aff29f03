"""How a server tells clients where it wants their sessions: an RPC program beside NFS.

It is served on RDMA connections, with a number of the range that RFC 5531 (section 13.1) leaves to
sites. A client asks with ADVISE now and then, on each of its connections, and says with REPORT what
it did. docs/moving.md has the whole protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from livedma.rpc.xdr import Decoder, Encoder

__all__ = ["PROGRAM", "VERSION", "Advice", "Procedure", "Progress", "Report", "Verdict", "Wish"]

PROGRAM = 0x2C7D0001
VERSION = 1
WORDS_MOST = 256


class Procedure(IntEnum):
    NULL = 0
    ADVISE = 1
    REPORT = 2


class Wish(IntEnum):
    """What a connection's client is asked to do."""

    STAY = 0  # nothing
    SPREAD = 1  # to open another connection, and to make new sessions there
    MIGRATE = 2  # to open another one, to move all sessions there, and to close this one


class Progress(IntEnum):
    """What a client has done of it."""

    OPENED = 1  # the other connection is there
    MOVING = 2  # so many sessions use it
    DONE = 3  # all do, and this connection will be closed
    REFUSED = 4  # it could not be done; all is as it was


class Verdict(IntEnum):
    """What the server makes of a report."""

    TAKEN = 0
    STALE = 1  # it is about a wish that the server does not have (any more)
    WRONG = 2  # it cannot be


@dataclass(frozen=True, slots=True)
class Advice:
    """serial: another one for each wish, 0 while there was none. ask_again_ms: not before."""

    serial: int
    wish: Wish
    ask_again_ms: int

    def encode(self) -> bytes:
        out = Encoder()
        out.u32(self.serial)
        out.enum(self.wish)
        out.u32(self.ask_again_ms)
        return bytes(out)

    @classmethod
    def decode(cls, decoder: Decoder) -> Advice:
        """Raises XdrError."""
        ret = cls(decoder.u32(), decoder.enum(Wish), decoder.u32())
        decoder.finish()
        return ret


@dataclass(frozen=True, slots=True)
class Report:
    """About the wish with that serial. words: for people."""

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
