# SPDX-License-Identifier: BSD-2-Clause
"""Lists the function that serves each operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import Op
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.reply import ReplyEncoder

__all__ = ["OPERATIONS", "Operation", "operation"]

Handler = Callable[["Context", Decoder, "ReplyEncoder"], None]


@dataclass(frozen=True, slots=True)
class Operation:
    """Says how an operation is served. serve: decodes all arguments, does the work and encodes what
    follows an OK; or `NfsError`.

    minor: the first minor version that has it. needs_handle: NOFILEHANDLE without a current one.
    changes: a read-only export refuses it. error_body: what follows the status of an operation that
    fails, even before it is served.
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
