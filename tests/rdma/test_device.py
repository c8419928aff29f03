# SPDX-License-Identifier: BSD-2-Clause
"""The device on real sockets: two of them on loopback, blocking and with asyncio."""

from __future__ import annotations

import array
import asyncio
import mmap
import threading

import pytest
from pairs import End, connected

from livedma.errors import LivedmaError
from livedma.rdma import Device, WorkRequest


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mtu", [256, 1024, 4096])
def test_every_operation_moves_the_right_bytes(version: int, mtu: int) -> None:
    with connected(version=version, mtu=mtu) as (a, b):
        data = a.fill(0, 100_000)
        remote = {"remote_va": b.region.va + 1000, "rkey": b.region.rkey}
        b.qp.post_recv(5, [b.region[200_000:400_000]])
        b.qp.post_recv(6)
        a.qp.post_send(1, "WRITE", [a.region[0:100_000]], **remote)
        a.qp.post_send(2, "SEND_WITH_IMM", [a.region[0:70_000]], imm=99)
        a.qp.post_send(3, "READ", [a.region[300_000:400_000]], **remote)
        flags = ("signaled", "fence")  # or the READ might see it
        a.qp.post_send(4, "WRITE_WITH_IMM", inline=b"done", imm=7, flags=flags, **remote)
        assert [(c.wr_id, c.status) for c in a.complete(4)] == [
            (i, "SUCCESS") for i in (1, 2, 3, 4)
        ]
        first, second = b.complete(2)
        assert (first.wr_id, first.imm, first.length) == (5, 99, 70_000)
        assert (second.wr_id, second.imm, second.operation) == (6, 7, "RECV_WRITE_WITH_IMM")
        assert b.memory[200_000:270_000] == data[:70_000]
        assert b.memory[1000:101_000] == b"done" + data[4:]
        assert a.memory[300_000:400_000] == data


def test_atomics_change_the_peers_memory_and_bring_what_was_there() -> None:
    with connected() as (a, b):
        b.memory[0:8] = (40).to_bytes(8, "little")
        remote = {"remote_va": b.region.va, "rkey": b.region.rkey}
        a.qp.post_send(1, "FETCH_ADD", [a.region[0:8]], swap_add=2, **remote)
        a.qp.post_send(2, "COMPARE_SWAP", [a.region[8:16]], compare=42, swap_add=7, **remote)
        assert [c.status for c in a.complete(2)] == ["SUCCESS", "SUCCESS"]
        found = [int.from_bytes(a.memory[i : i + 8], "little") for i in (0, 8)]
        assert found == [40, 42]
        assert int.from_bytes(b.memory[0:8], "little") == 7


def test_datagrams_arrive_with_their_header() -> None:
    with connected("UD") as (a, b):
        b.qp.post_recv(1, [b.region[0:1000]])
        to = {"dst": b.device.address, "remote_qp": b.qp.number, "remote_qkey": 0x11111111}
        a.qp.post_send(1, "SEND", inline=b"hello", **to)
        assert b.complete()[0].src_qp == a.qp.number
        assert b.memory[40:45] == b"hello"
        assert bytes(b.memory[32:36]) == bytes([127, 0, 0, 1])  # where it came from


def test_many_requests_in_one_call_share_trains() -> None:
    with connected(mtu=4096, init={"max_send": 64}) as (a, b):
        data = a.fill(0, 64 * 4096)
        remote = {"rkey": b.region.rkey}
        a.qp.post_sends(
            WorkRequest(
                i,
                "WRITE",
                [a.region[i * 4096 : (i + 1) * 4096]],
                remote_va=b.region.va + i * 4096,
                **remote,
            )
            for i in range(64)
        )
        assert [c.wr_id for c in a.complete(64)] == list(range(64))
        assert b.memory[: len(data)] == data
        assert a.device.counters["sent_pkts"] == 64
        assert a.device.port_counters["sent_trains"] <= 16


@pytest.mark.parametrize(
    "make", [bytearray, lambda n: mmap.mmap(-1, n), lambda n: array.array("B", bytes(n))]
)
def test_any_writable_buffer_is_memory(make: object) -> None:
    with connected() as (a, b):
        buffer = make(4096)  # type: ignore[operator]
        with b.pd.register(buffer, "remote_write") as region:
            a.qp.post_send(1, "WRITE", inline=b"there", remote_va=region.va + 10, rkey=region.rkey)
            assert a.complete()[0].status == "SUCCESS"
        assert bytes(memoryview(buffer)[10:15]) == b"there"


def test_read_only_memory_is_refused() -> None:
    with Device("127.0.0.1") as device, pytest.raises(BufferError):
        device.protection_domain().register(b"constant")


def test_a_closed_region_is_out_of_reach() -> None:
    with connected() as (a, b):
        where = {"remote_va": b.region.va, "rkey": b.region.rkey}
        b.region.close()
        a.qp.post_send(1, "READ", [a.region[0:100]], **where)
        assert a.complete()[0].status == "REM_ACCESS_ERR"
        assert b.memory.pop() == 0  # the buffer is free to change its size again


def test_asyncio_waits_without_blocking_the_loop() -> None:
    async def ping(a: End, b: End) -> list[str]:
        async def receive() -> str:
            b.qp.post_recv(1, [b.region[0:100]])
            return (await b.cq.wait_async())[0].status

        receiver = asyncio.create_task(receive())
        await asyncio.sleep(0)
        a.qp.post_send(1, "SEND", inline=b"over")
        sent = await a.cq.wait_async()
        return [sent[0].status, await receiver]

    with connected() as (a, b):
        for _ in range(2):  # also in a second loop
            assert asyncio.run(ping(a, b)) == ["SUCCESS", "SUCCESS"]


def test_who_waits_asleep_is_woken_by_a_packet() -> None:
    with connected() as (a, b):
        b.qp.post_recv(1, [b.region[0:100]])
        found: list[str] = []
        thread = threading.Thread(
            target=lambda: found.extend(c.status for c in b.cq.wait(60, spin=0))
        )
        thread.start()
        a.qp.post_send(1, "SEND", inline=b"wake up")
        thread.join(60)
        assert found == ["SUCCESS"]


def test_waiting_has_an_end() -> None:
    with connected() as (a, _):
        assert a.cq.wait(0.01) == []


def test_a_device_that_closes_lets_nobody_wait() -> None:
    with connected() as (a, _):
        failures: list[BaseException] = []

        def wait() -> None:
            try:
                a.cq.wait()
            except ValueError as error:
                failures.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        a.device.close()
        thread.join(60)
        assert "closed" in str(failures[0])
        with pytest.raises(ValueError, match="closed"):
            a.qp.post_send(1, "SEND")


def test_an_address_that_is_not_shared_has_one_device() -> None:
    with Device("127.0.0.1", share=False), pytest.raises(LivedmaError, match="in use"):
        Device("127.0.0.1", share=False)


@pytest.mark.parametrize("peer", ["127.0.0.1", "localhost", "127.255.255.252"])
def test_towards_a_peer_on_loopback_it_has_an_address_of_its_own(peer: str) -> None:
    """Users without privilege cannot share the peer's."""
    there = peer if peer[0] == "1" else "127.0.0.1"
    with (
        Device(there, share=False),
        Device.towards(peer, share=False) as first,
        Device.towards(peer, share=False) as second,
    ):
        assert len({there, first.address, second.address}) == 3


def test_a_foreign_address_is_refused() -> None:
    with pytest.raises(LivedmaError, match="no interface"):
        Device("192.0.2.1")
