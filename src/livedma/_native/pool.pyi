# SPDX-License-Identifier: BSD-2-Clause
"""Pools of buffers, without the source of their memory. Contracts: native/memory/pool.h."""

from collections.abc import ValuesView
from types import TracebackType
from typing import Any, Self, final

#: Bytes on which each buffer begins: no two share a cache line.
ALIGNMENT: int
#: The most buffers that a shard has.
SHARD_BUFFERS_MAX: int
#: The most buffers that a pool has.
BUFFERS_MAX: int

class PoolClosed(ValueError):
    """Reports that the pool was closed, before the call or while it waited."""

    def __init__(self) -> None: ...

@final
class Buffer:
    """Represents a buffer that is taken from a pool, until `release` or the end of its block.

    One that is dropped without `release` stays taken: the device may still use it.
    """

    @property
    def pool(self) -> Pool:
        """Is the pool that it was taken from."""
    @property
    def handle(self) -> int:
        """Is its handle, another one each time that the buffer is taken; 0: it was released."""
    @property
    def lkey(self) -> int:
        """Is the key for requests of this side."""
    @property
    def rkey(self) -> int:
        """Is the key for the peer."""
    @property
    def va(self) -> int:
        """Is its DMA address."""
    @property
    def length(self) -> int:
        """Counts its bytes."""
    @property
    def address(self) -> int:
        """Is its address in this process."""
    @property
    def memory(self) -> memoryview:
        """Shows its bytes, until it is released."""
    @property
    def released(self) -> bool:
        """Tells whether it was given back, or its pool was closed."""
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    def release(self) -> None:
        """Gives it back. BufferError while a view is on its memory: it stays taken. ValueError: it
        was released already.
        """
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

class Pool:
    """Cuts equal buffers from shards. Its owner, a subclass, adds shards and retires them.

    Taking prefers the fullest shard that has a free buffer, so that others empty out and can be
    given back. Buffers for data never get so many that those for control could not have `reserve`
    at the same time. Any thread may call anything.
    """

    def __init__(
        self,
        buffer_size: int,
        shard_buffers: int,
        reserve: int = 0,
        minimum: int = 0,
        maximum: int = 0,
    ) -> None:
        """Makes a pool without shards; maximum 0: `BUFFERS_MAX`."""
    @property
    def number(self) -> int:
        """Tells pools of this process apart in events."""
    @property
    def buffer_size(self) -> int:
        """Counts the bytes of a buffer."""
    @property
    def shard_buffers(self) -> int:
        """Is the greatest number of buffers that a shard has."""
    @property
    def closed(self) -> bool:
        """Tells whether it was shut."""
    @property
    def stride(self) -> int:
        """Counts the bytes from one buffer to the next."""
    @property
    def leases(self) -> ValuesView[Any]:
        """Lists the leases of its shards."""
    def take_free(self, control: bool = False) -> Buffer | None:
        """Takes a buffer if one is free for this class, else returns None."""
    def room(self) -> int:
        """Returns how many buffers the next shard may have; 0: the pool may not grow."""
    def is_short(self) -> bool:
        """Returns whether it has less than its minimum and reserve."""
    def set_bounds(self, minimum: int, maximum: int = 0) -> None:
        """Changes how many buffers there have to be and may be, from now on.

        If there are more than `maximum` (0: `BUFFERS_MAX`), no more than that are given out, and
        shards go as they become idle; if there are fewer than `minimum`, the owner adds some.
        """
    def add_shard(self, lease: Any, buffers: int) -> None:
        """Takes over a lease of memory as a shard. Waiters get its buffers first."""
    def retire_shard(self, keep_idle: int) -> Any:
        """Returns the lease of an idle shard, which is the owner's again, as long as more than
        `keep_idle` are idle and minimum and reserve stay whole; else None.
        """
    def shut(self) -> list[Any]:
        """Ends all waiting and taking, and returns the leases, which are the owner's again."""
    def tend(self) -> None:
        """Serves the pool when it calls for its owner; a subclass defines it."""
    def answer(self) -> None:
        """Says that the owner came: from now on it may be called again."""
    def listen_for_calls(self) -> int:
        """Returns a descriptor that becomes readable from now on; `tend` is not called."""
    def counts(self) -> dict[str, Any]:
        """Returns the figures of struct ldma_pool_stats; by class, a pair: data first."""
    def shards(self) -> list[tuple[int, int, int]]:
        """Returns (va, buffers, taken) of each shard, in the order of their addresses."""
    def waits(self, control: bool) -> tuple[int, int, int, list[tuple[int, int]]]:
        """Returns how long waiters waited, whether or not they got a buffer: (count, sum, longest,
        [(least of a bucket, how many)]), in ns.
        """

class Inbox:
    """Collects the waiters of an event loop's tasks whose waiting has ended."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable when there is something to `read`."""
    def __len__(self) -> int:
        """Returns how many wait, or were not read yet."""
    def read(self) -> list[Any]:
        """Takes the tokens of those whose waiting has ended, in that order."""

class Waiter:
    """Holds a place in a pool's queue for a buffer: first come, first served, control before data.

    A thread waits with `wait`, or an inbox gets the token.
    """

    def __init__(
        self, pool: Pool, control: bool = False, inbox: Inbox | None = None, token: Any = None
    ) -> None:
        """Queues for a buffer from now on."""
    @property
    def token(self) -> Any:
        """Is the object that the inbox gets when the waiting has ended."""
    @property
    def is_over(self) -> bool:
        """Tells whether the waiting has ended."""
    def wait(self, seconds: float) -> bool:
        """Waits up to so many seconds, and returns whether the waiting is over. A signal's handler
        may run meanwhile, and raise.
        """
    def claim(self) -> Buffer | None:
        """Returns the buffer, or None: then it waits no more. Raises PoolClosed."""
