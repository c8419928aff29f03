# SPDX-License-Identifier: BSD-2-Clause
"""What is opened may be awaited, or entered at once."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from livedma.nfs import Client
from livedma.opening import enterable
from livedma.rdma import cm


class Door:
    def __init__(self) -> None:
        self.log: list[str] = []

    async def __aenter__(self) -> Door:
        self.log.append("entered")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.log.append("left" if kind is None else kind.__name__)
        return kind is KeyError


@enterable
async def opened(locked: bool = False) -> Door:
    """Opens it."""
    await asyncio.sleep(0)
    if locked:
        raise PermissionError("it is locked")
    return Door()


def test_it_is_awaited() -> None:
    async def run() -> None:
        door = await opened()
        assert door.log == []
        async with await opened() as door:
            assert door.log == ["entered"]
        assert door.log == ["entered", "left"]

    asyncio.run(run())


def test_it_is_entered_at_once() -> None:
    async def run() -> None:
        async with opened() as door, opened() as other:
            assert door.log == ["entered"] and other is not door
        assert door.log == ["entered", "left"]
        async with opened() as door:
            raise KeyError
        assert door.log == ["entered", "KeyError"]
        with pytest.raises(ValueError, match="of the block"):
            async with opened() as door:
                raise ValueError("of the block")
        assert door.log == ["entered", "ValueError"]

    asyncio.run(run())


def test_what_fails_while_it_opens_is_raised() -> None:
    async def run() -> None:
        with pytest.raises(PermissionError):
            await opened(locked=True)
        with pytest.raises(PermissionError):
            async with opened(locked=True):
                pytest.fail("it was opened")

    asyncio.run(run())


def test_it_is_a_coroutine_to_asyncio() -> None:
    assert asyncio.run(opened()).log == []

    async def run() -> None:
        one, other = await asyncio.gather(asyncio.create_task(opened()), opened())
        assert one is not other
        task = asyncio.create_task(opened())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(await asyncio.wait_for(opened(), 10), Door)

    asyncio.run(run())


def test_it_is_used_once() -> None:
    async def run() -> None:
        opening = opened()
        await opening
        with pytest.raises(RuntimeError, match="cannot reuse"):
            await opening

    asyncio.run(run())


def test_one_that_is_forgotten_warns_as_a_coroutine_does() -> None:
    with pytest.warns(RuntimeWarning, match="'opened' was never awaited"):
        opened()


@pytest.mark.parametrize(
    "function", [Client.connect, Client.open, Client.session, cm.connect_async]
)
def test_names_and_arguments_are_those_of_the_function(function: object) -> None:
    assert inspect.getdoc(function)
    assert inspect.signature(function).parameters.keys() > set()  # type: ignore[arg-type]
