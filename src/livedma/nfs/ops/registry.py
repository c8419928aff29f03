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
    changes: what a read-only export refuses.
    """

    serve: Handler
    minor: int = 1
    needs_handle: bool = False
    changes: bool = False


OPERATIONS: dict[Op, Operation] = {}


def operation(
    op: Op, *, minor: int = 1, needs_handle: bool = False, changes: bool = False
) -> Callable[[Handler], Handler]:
    """Registers a function for an operation."""

    def register(serve: Handler) -> Handler:
        if op in OPERATIONS:
            raise ValueError(f"{op.name} is served already")
        OPERATIONS[op] = Operation(serve, minor, needs_handle, changes)
        return serve

    return register
