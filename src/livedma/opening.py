# SPDX-License-Identifier: BSD-2-Clause
"""Opens what takes a while to open and ends with a block: `async with connect(...)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

__all__ = ["Opening", "enterable"]

P = ParamSpec("P")
T = TypeVar("T", bound=AbstractAsyncContextManager[Any])


class Opening(Coroutine[Any, Any, T], AbstractAsyncContextManager[T]):
    """Wraps a coroutine that opens something, so that it can be entered at once.

    `await connect(...)` returns what was opened; `async with connect(...) as opened:` closes it at
    the end, too. It is used once, as a coroutine is.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> T:
        self._opened = await self._coroutine
        entered: T = await self._opened.__aenter__()
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._opened is not None
        return await self._opened.__aexit__(kind, error, traceback)


def enterable(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Opening[T]]:
    """Makes a coroutine function return an `Opening`."""

    @functools.wraps(function)
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening[T]:
        return Opening(function(*args, **kwargs))

    return opening
