# SPDX-License-Identifier: BSD-2-Clause
"""The connection manager with asyncio: nothing blocks the loop, and cancelling loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from loopback import HERE, THERE

from livedma.rdma import Device, cm

PORT = 7175
PATIENCE = 20.0


@contextmanager
def both() -> Iterator[tuple[Device, Device]]:
    with Device(HERE) as one, Device(THERE) as two:
        yield one, two


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def test_a_connection_from_request_to_end() -> None:
    async def work() -> None:
        with both() as (one, two), cm.listen(two, PORT) as listener:

            async def serve() -> list[bytes]:
                seen = []
                async for request in listener:
                    connection = await request.accept_async(private_data=b"welcome")
                    seen.append(request.private_data[:1])
                    await connection.wait_disconnected_async()
                    connection.close()
                    if len(seen) == 3:
                        listener.close()
                return seen

            serving = asyncio.create_task(serve())
            for number in b"abc":
                connection = await cm.connect_async(
                    one, two.address, PORT, private_data=bytes([number])
                )
                assert connection.private_data.startswith(b"welcome")
                await connection.disconnect_async()
                connection.close()
            assert await serving == [b"a", b"b", b"c"]

    run(work())


def test_many_at_once() -> None:
    async def work() -> None:
        with both() as (one, two), cm.listen(two, PORT) as listener:
            requests = asyncio.gather(*(listener.get_async() for _ in range(20)))
            asking = [
                asyncio.create_task(cm.connect_async(one, two.address, PORT)) for _ in range(20)
            ]
            theirs = await asyncio.gather(*(request.accept_async() for request in await requests))
            mine = await asyncio.gather(*asking)
            assert all(connection.is_established for connection in (*mine, *theirs))

    run(work())


def test_a_rejection_and_a_service() -> None:
    async def work() -> None:
        with both() as (one, two):
            cm.manager(two)  # without which nobody would answer
            with pytest.raises(cm.RejectedError, match="invalid service ID"):
                await cm.connect_async(one, two.address, PORT)
            with pytest.raises(cm.ConnectError, match="unsupported service ID"):
                await cm.resolve_async(one, two.address, PORT)
            qp = two.protection_domain().queue_pair("UD", two.completion_queue())
            with cm.announce(two, PORT, qp):
                assert (await cm.resolve_async(one, two.address, PORT)).qpn == qp.number

    run(work())


def test_who_is_cancelled_withdraws_the_request() -> None:
    async def work() -> None:
        with both() as (one, two), cm.listen(two, PORT) as listener:
            asking = asyncio.create_task(cm.connect_async(one, two.address, PORT))
            request = await listener.get_async()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            while request.is_waiting:
                await asyncio.sleep(0.01)
            with pytest.raises(cm.ConnectionStateError):
                await request.accept_async()

    run(work())


def test_a_request_for_a_waiter_that_was_cancelled_is_for_the_next() -> None:
    async def work() -> None:
        with both() as (one, two), cm.listen(two, PORT) as listener:
            waiting = asyncio.create_task(listener.get_async())
            await asyncio.sleep(0)
            asking = asyncio.create_task(cm.connect_async(one, two.address, PORT))
            while cm.manager(two)._engine.is_idle:
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            theirs = await (await listener.get_async()).accept_async()
            assert theirs.is_established and (await asking).is_established

    run(work())


def test_who_waits_for_the_end_may_stop_waiting() -> None:
    async def work() -> None:
        with both() as (one, two), cm.listen(two, PORT) as listener:
            asking = asyncio.create_task(cm.connect_async(one, two.address, PORT))
            theirs = await (await listener.get_async()).accept_async()
            mine = await asking
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(theirs.wait_disconnected_async(), 0.01)
            await mine.disconnect_async()
            await theirs.wait_disconnected_async()

    run(work())
