"""Which function serves which operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import Op
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.context import Context
    from livedma.nfs.reply import ReplyEncoder

__all__ = ["OPERATIONS", "Operation", "operation"]

Handler = Callable[["Context", Decoder, "ReplyEncoder"], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """serve: decodes all its arguments, does the work, encodes what follows an OK; or `NfsError`.

    minor: the first minor version that has it. needs_handle: NOFILEHANDLE without a current one.
    changes: what a read-only export refuses. error_body: what follows its status even when it
    fails before it is served.
    """

    serve: Handler
    minor: int = 1
    needs_handle: bool = False
    changes: bool = False
    error_body: bytes = b""


OPERATIONS: dict[Op, Operation] = {}


def operation(
    op: Op,
    *,
    minor: int = 1,
    needs_handle: bool = False,
    changes: bool = False,
    error_body: bytes = b"",
) -> Callable[[Handler], Handler]:
    """Registers a function for an operation."""

    def register(serve: Handler) -> Handler:
        if op in OPERATIONS:
            raise ValueError(f"{op.name} is served already")
        OPERATIONS[op] = Operation(serve, minor, needs_handle, changes, error_body)
        return serve

    return register
