# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable
from typing import Any, Protocol, final

from livedma._native.pool import Pool
from livedma._native.port import Port
from livedma._native.rdma import CompletionQueue, QueuePair

SPARE_RECEIVES: int

class _Data(Protocol):
    @property
    def data(self) -> bytes | bytearray | memoryview: ...

class Service:
    """Runs the thread that serves all endpoints of a device, until stop()."""

    def __init__(
        self,
        port: Port,
        cq: CompletionQueue,
        completions: int,
        spin: float = 0.0,
        has_reserve: bool = False,
    ) -> None: ...
    def stop(self) -> None:
        """Ends the thread. Every endpoint has to have ended, and next_ended() has to have
        taken it.
        """
    @property
    def is_stopped(self) -> bool:
        """Tells whether `stop` was called."""
    def set_program(self, capsule: object | None) -> None:
        """Sets the program that gets calls before Python: a capsule "ldma_program", or None."""
    def next_call(
        self, timeout: float | None = None, *, only_control: bool = False
    ) -> SlowCall | None:
        """Returns a call that Python has to answer; None after timeout seconds, or when the service
        has stopped. only_control: the thread serves no other calls than control traffic.
        """
    def next_ended(self, timeout: float | None = None) -> Endpoint | None:
        """Returns an endpoint that has ended, each once; None as next_call()."""
    @property
    def counters(self) -> dict[str, int]:
        """Counts the thread's wakes, batches, completions and locks, and its time with them,
        busy_ns.
        """

class Endpoint:
    """Serves a connection. Its queue pair and its pools have to stay until next_ended()
    returns it.
    """

    owner: Any
    def __init__(
        self,
        service: Service,
        qp: QueuePair,
        receive_pool: Pool,
        data_pool: Pool,
        *,
        number: int,
        credits: int,  # noqa: A002 - the specification's word
        credits_max: int,
        completions: int,
        send_inline: int,
        may_invalidate: bool = False,
        message_bytes: int = 1048576,
        gathered_bytes: int = 16777216,
        stall: float = 60.0,
        chunks: int = 16,
        segments: int = 256,
        list_bytes: int = 16777216,
        owner: object = None,
    ) -> None: ...
    @property
    def service(self) -> Service:
        """Is the service whose thread serves it."""
    @property
    def qp(self) -> QueuePair:
        """Is the queue pair of the connection."""
    @property
    def receive_pool(self) -> Pool:
        """Gives the buffers of Receives and replies."""
    @property
    def data_pool(self) -> Pool:
        """Gives the buffers for data."""
    @property
    def number(self) -> int:
        """Is the connection's number, unique in the process."""
    def start(self) -> None:
        """Sends the replies that waited until the queue pair was ready to send, as it is from now
        on.
        """
    def drain(self) -> None:
        """Takes no further call: one that comes is dropped unanswered. Calls under way are
        answered; after them, in_progress and replying of statistics() are 0. close() comes next.
        """
    @property
    def replied_ns(self) -> int:
        """Is the time at which the last reply was posted, by the monotonic clock; 0: there was
        none.
        """
    def close(self) -> None:
        """Ends the connection; calls under way get errors. Calling it a second time has no
        effect.
        """
    @property
    def is_open(self) -> bool:
        """Tells whether the connection is open: it has not ended, and `close` was not called."""
    @property
    def calls(self) -> int:
        """Counts the calls that have come so far."""
    @property
    def credits(self) -> int:
        """Is the number of calls that the peer may have under way. Raising it posts Receives; if it
        is lowered, those that are too many run out.
        """
    @credits.setter  # noqa: A003 - the specification's word
    def credits(self, value: int) -> None: ...
    def moved(self, read_bytes: int, written_bytes: int) -> None:
        """Counts what a call that Python answers has read or written of files."""
    def statistics(self) -> dict[str, Any]:
        """Returns the figures of struct ldma_endpoint_stats."""
    def totals(self) -> tuple[int, ...]:
        """Returns, since it began: (operations, bytes read, bytes written, calls that found fewer
        Receives than credits, calls without an answer), and of latency, waits for buffers, for the
        send queue, the store and its queue: how many took less than each of TIMES_BOUNDS_NS, how
        many there were, ns together.
        """

@final
class EndpointLook:
    """Compares an endpoint's figures from one look to the next; the first interval begins with the
    endpoint. Each reader keeps a look of its own.
    """

    def again(self, endpoint: Endpoint) -> dict[str, Any]:
        """Returns present levels, what was counted since the last look, and the times since then:
        (count, sum, half of them within, 99 of 100 within, longest), in ns.
        """

class SlowCall:
    """Carries a call that Python has to answer: reply() or drop() ends it, once. A call that is
    garbage-collected unanswered is dropped.
    """

    @property
    def endpoint(self) -> Endpoint:
        """Is the endpoint that the call came to."""
    @property
    def message(self) -> bytes:
        """Holds the whole RPC message from its XID on, with what came by read chunks."""
    @property
    def xid(self) -> int:
        """Is the call's transaction id."""
    @property
    def received_ns(self) -> int:
        """Is the time at which the call came, by the monotonic clock."""
    @property
    def waited_ns(self) -> int:
        """Is the time that the call has waited for buffers so far."""
    @property
    def has_write(self) -> bool:
        """Tells whether the call offers a write chunk, perhaps of no bytes."""
    @property
    def write_room(self) -> int:
        """Counts the bytes that the first write chunk takes."""
    @property
    def reply_room(self) -> int:
        """Counts the bytes of a message that can be sent back, inline or by a chunk."""
    def reply(self, parts: Iterable[bytes | _Data]) -> None:
        """Sends the parts: bytes, and at most one part with `.data`, which goes to the write chunk
        if there is one.
        """
    def drop(self) -> None:
        """Ends the call without a reply."""
