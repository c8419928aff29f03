# SPDX-License-Identifier: BSD-2-Clause
"""A connection's DMA memory: what it says there is room for can be had, to the window's end."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livedma.errors import NoRoomError
from livedma.rdma import Device
from livedma.rpc.rdma_memory import ConnectionMemory, Kind

pytestmark = pytest.mark.slow

HERE = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.13"
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with Device(HERE) as device:
        yield device


def memory_of(device: Device, **options: int) -> ConnectionMemory:
    wanted = {
        "window_bytes": 16 * MIB,
        "mapped_bytes": 4 * MIB,
        "inline_bytes": 4096,
        "buffer_bytes": 64 * KIB,
        "credits_begin": 64,
        "reserve": 0,
        **options,
    }
    return ConnectionMemory(device.protection_domain(), **wanted)


def test_it_grows_to_the_end_of_its_window(device: Device) -> None:
    with memory_of(device) as memory:
        assert memory.first_bytes == memory.window.linked == 4 * MIB
        assert memory.buffers == 56
        room = memory.room
        assert room == 12 * MIB - 64 * KIB  # for replies that are acknowledged late
        with pytest.raises(NoRoomError, match="room for 12517376 bytes more"):
            memory.extend(room + 1)
        assert memory.window.linked == 4 * MIB
        assert memory.extend(room) == room
        assert memory.room == 0
        assert memory.buffers == memory.data_pool.stats.buffers == 56 + room // (64 * KIB)
        assert memory.window.linked == 16 * MIB - 64 * KIB
        with pytest.raises(NoRoomError):
            memory.extend(1)


def test_in_large_pages_it_grows_to_the_end_of_its_window(device: Device) -> None:
    """Every step is of 2 MiB, which buffers fill; none is taken for what others have room for."""
    pd = device.protection_domain()
    with ConnectionMemory(
        pd,
        window_bytes=16 * MIB,
        mapped_bytes=4 * MIB,
        inline_bytes=4096,
        buffer_bytes=64 * KIB,
        credits_begin=64,
        reserve=1,
        kind=Kind("2MiB"),
    ) as memory:
        assert memory.window.linked == memory.first_bytes == 4 * MIB
        assert (memory.buffers, memory.room) == (31, 12 * MIB)
        memory.make_ready_for(128)  # where there are Receives for 256
        assert memory.extend(1) == memory.bytes_to_extend(1) == 2 * MIB
        assert (memory.buffers, memory.window.linked) == (63, 6 * MIB)
        assert memory.bytes_for_credits(128) == 0 and memory.bytes_for_credits(512) == 2 * MIB
        assert memory.extend(memory.room) == 10 * MIB
        assert (memory.room, memory.window.linked) == (0, 16 * MIB)
        assert memory.shrink(MIB) == 2 * MIB and memory.window.linked == 14 * MIB
        memory.shrink(16 * MIB)
        assert (memory.buffers, memory.window.linked) == (31, 4 * MIB)


def test_what_is_kept_back_is_no_data_buffer(device: Device) -> None:
    """It is mapped within what was asked for, and no extension or shrink takes it away."""
    with memory_of(device, reserve=2) as memory:
        assert memory.first_bytes == 4 * MIB and memory.kept_back_bytes == 128 * KIB
        assert (memory.buffers, memory.data_pool.stats.buffers) == (54, 56)
        memory.extend(MIB)
        assert (memory.buffers, memory.data_pool.stats.buffers) == (70, 72)
        memory.shrink(16 * MIB)
        assert memory.buffers == 1 and memory.data_pool.stats.buffers >= 3
        held = [memory.data_pool.take_free()]
        assert held[0] is not None and memory.data_pool.take_free() is None
        assert memory.taken() == (1, 0)
        kept = [memory.data_pool.take_free(True) for _ in range(2)]
        assert all(kept) and memory.taken() == (1, 0)
        for buffer in (*held, *kept):
            assert buffer is not None
            buffer.release()


def test_replies_that_are_acknowledged_late_have_their_place(device: Device) -> None:
    with memory_of(device) as memory:
        memory.extend(memory.room)
        taken = []
        while (buffer := memory.receive_pool.try_take()) is not None:
            taken.append(buffer)
        assert len(taken) == 2 * 64 + 16
        assert memory.window.linked == memory.window.size
        assert memory.room == 0
        for buffer in taken:
            buffer.release()


def test_receives_for_more_credits_take_of_the_room(device: Device) -> None:
    with memory_of(device) as memory:
        before = memory.room
        memory.make_ready_for(65)
        assert memory.receive_pool.stats.buffers == 2 * 65  # not a whole shard
        memory.make_ready_for(256)
        assert memory.room == before - 2 * 4096 * (256 - 64)
        assert memory.extend(memory.room)
        with pytest.raises(NoRoomError):
            memory.make_ready_for(512)
        assert memory.receive_pool.stats.buffers == 2 * 256
        memory.make_ready_for(64)
        memory.receive_pool.trim()
        assert memory.receive_pool.stats.buffers == 2 * 64
        assert memory.room == 2 * 4096 * (256 - 64)


def test_shrinking_gives_the_room_back(device: Device) -> None:
    with memory_of(device) as memory:
        room = memory.room
        memory.extend(8 * MIB)
        assert memory.shrink(8 * MIB) == 8 * MIB
        assert memory.room == room
        memory.data_pool.trim()
        assert (memory.window.linked, memory.room) == (memory.first_bytes, room)


STEPS = st.lists(
    st.tuples(st.sampled_from(["extend", "shrink", "credits"]), st.integers(1, 40)), max_size=12
)


def test_whatever_happened_the_room_can_be_had(device: Device) -> None:
    """Also in pieces between what is mapped still, and with buffers of any size."""

    @settings(max_examples=40, deadline=None)
    @given(STEPS, st.sampled_from([4096, 12288, 65536, 100_000]), st.sampled_from([0, 1]))
    def check(steps: list[tuple[str, int]], buffer_bytes: int, reserve: int) -> None:
        with memory_of(
            device,
            window_bytes=4 * MIB,
            mapped_bytes=MIB,
            buffer_bytes=buffer_bytes,
            reserve=reserve,
        ) as memory:
            for what, amount in steps:
                try:
                    if what == "extend":
                        memory.extend(amount * 64 * KIB)
                    elif what == "shrink":
                        memory.shrink(amount * 64 * KIB)
                    else:
                        memory.make_ready_for(4 * amount)
                except NoRoomError:
                    pass
            room = memory.room
            if room:
                assert memory.extend(room) == room
            if buffer_bytes % 4096 == 0:  # else more fit into whole shards than one by one
                assert memory.room == 0
            assert memory.data_pool.stats.buffers >= memory.buffers

    check()


@pytest.mark.parametrize(("buffer_bytes", "stride"), [(1, 64), (100, 128), (4096, 4096)])
def test_small_buffers_share_their_shards(device: Device, buffer_bytes: int, stride: int) -> None:
    """Each shard takes whole pages, and time to map: a shard for each buffer took minutes."""
    with memory_of(device, buffer_bytes=buffer_bytes) as memory:
        assert memory.window.linked == 4 * MIB
        assert memory.buffers == memory.data_pool.stats.buffers == (4 * MIB - 512 * KIB) // stride
        assert memory.data_pool.stats.shards <= 56


@pytest.mark.parametrize("reserve", [0, 1])
@pytest.mark.parametrize("buffer_bytes", [4097, 5000, 12345, 65537, 100_000])
def test_buffers_of_odd_sizes_fill_a_window(
    device: Device, buffer_bytes: int, reserve: int
) -> None:
    """Pages of shards that no buffer fills count, too: all of the window can be asked for."""
    options = {"buffer_bytes": buffer_bytes, "reserve": reserve}
    for mapped_bytes in (4 * MIB, 16 * MIB):
        with memory_of(device, mapped_bytes=mapped_bytes, **options) as memory:
            stride, shard = memory.data_pool.stride, memory.data_pool.shard_size
            assert mapped_bytes - shard < memory.first_bytes <= mapped_bytes
            assert memory.buffers * stride > (mapped_bytes - 512 * KIB) * 0.9 - shard


def test_a_large_window_begins_with_hundreds_of_shards(device: Device) -> None:
    options = {"window_bytes": 256 * MIB, "mapped_bytes": 64 * MIB, "buffer_bytes": 4096}
    with memory_of(device, **options) as memory:
        assert memory.window.linked == 64 * MIB
        assert memory.data_pool.stats.shards <= 257


def test_mapping_ends_when_nobody_wants_it_any_more(device: Device) -> None:
    class NotWanted(Exception):
        pass

    looks = iter(range(3))

    def go_on() -> None:
        if next(looks, None) is None:
            raise NotWanted

    pd = device.protection_domain()
    with pytest.raises(NotWanted):
        ConnectionMemory(
            pd,
            window_bytes=64 * MIB,
            mapped_bytes=64 * MIB,
            inline_bytes=4096,
            buffer_bytes=4096,
            credits_begin=8,
            reserve=1,
            go_on=go_on,
        )
    pd.close()  # nothing of it is left
