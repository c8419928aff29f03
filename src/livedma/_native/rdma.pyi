# SPDX-License-Identifier: BSD-2-Clause
"""Runs the device's protocol core without a wire. Contracts: native/device/*.h,
native/memory/iova.h."""

from collections.abc import Iterable, Sequence
from typing import Any

#: Queue pair types by name, as the numbers of ib_qp_type.
TYPES: dict[str, int]
#: States of a queue pair; the index of each is its number in ibv_qp_state.
STATES: tuple[str, ...]
#: Operations of a send request by name, as the numbers of ibv_wr_opcode.
OPERATIONS: dict[str, int]
#: Names of what completed, by the numbers of ibv_wc_opcode.
COMPLETED: dict[int, str]
#: Names of completion statuses, by the numbers of ibv_wc_status.
STATUSES: dict[int, str]
#: Names of events, by the numbers of ibv_event_type.
EVENTS: dict[int, str]
#: Attributes that `QueuePair.modify` may take besides those of its transition, as ibv_qp_attr_mask.
ATTRIBUTES: dict[str, int]

class Completion:
    """Says, as a work completion, what became of a send request or a Receive."""

    @property
    def wr_id(self) -> int:
        """Is the number that the caller gave the request."""
    @property
    def status(self) -> str:
        """Is SUCCESS, or the name of the error, one of `STATUSES`."""
    @property
    def operation(self) -> str:
        """Is the operation that completed, one of `COMPLETED`: SEND, WRITE, READ, RECV, ..."""
    @property
    def length(self) -> int:
        """Counts the bytes that were received, read or fetched."""
    @property
    def qp(self) -> int:
        """Is the number of the queue pair that the request was posted to."""
    @property
    def src_qp(self) -> int:
        """Is the number of the queue pair that sent a datagram."""
    @property
    def imm(self) -> int | None:
        """Is the immediate data that came with the message, or None."""
    @property
    def invalidated(self) -> int | None:
        """Is the key that the peer has invalidated with its message, or None."""
    @property
    def solicited(self) -> bool:
        """Tells whether the peer asked for an event with its message."""

class ProtectionDomain:
    """Joins queue pairs, regions and shared Receives that may be used together: a queue pair
    reaches the regions of its own domain only."""

    def close(self) -> None:
        """Frees the domain. OSError (EBUSY) while a queue pair, region or receive queue uses it."""

class CompletionQueue:
    """Collects work completions in a ring, and arms its event.

    It must have room for all that may complete to it: a completion that finds it full is lost and
    counted, and its queue pair goes to ERR. One thread at a time may poll it.
    """

    def __init__(self, capacity: int = 1024, engine: Engine | None = None) -> None:
        """Makes a queue; the capacity is rounded up to a power of two."""
    def close(self) -> None:
        """Frees the queue. OSError (EBUSY) while queue pairs complete here, or a thread waits."""
    @property
    def lost(self) -> int:
        """Counts how many completions found the queue full."""
    def poll(self, count: int = 64) -> list[Completion]:
        """Takes up to `count` completions, in their order."""
    def arm(self, solicited_only: bool = False) -> None:
        """Asks for one event at the next completion, or at the next that is solicited or failed."""
    def take_event(self) -> bool:
        """Returns whether the event has come since the queue was armed; true only once."""

class Region:
    """Lets the device and, as far as `access` says, peers use a buffer: a memory region.

    It holds the buffer until it is closed.
    """

    def __init__(
        self,
        engine: Engine,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
        key: int = 0,
    ) -> None:
        """Registers a writable buffer.

        access: rights of peers, of remote_read, remote_write, remote_atomic, remote_invalidate; and
        local_write. va: the DMA address, by default the buffer's own. pd: the domain, by default
        the engine's. key: chosen at random if 0.
        """
    @property
    def key(self) -> int:
        """Is the key by which queue pairs (lkey) and peers (rkey) use it."""
    @property
    def va(self) -> int:
        """Is the DMA address of its first byte."""
    @property
    def length(self) -> int:
        """Counts its bytes."""
    def close(self) -> None:
        """Takes the right away: a use of the key gets an error from now on."""

class SharedReceives:
    """Holds Receives that many queue pairs take from: a shared receive queue (SRQ)."""

    def __init__(
        self,
        pd: ProtectionDomain,
        depth: int = 128,
        max_sge: int = 4,
        *,
        engine: Engine | None = None,
    ) -> None:
        """Makes a queue of `depth` Receives, each of up to `max_sge` pieces of memory."""
    def post_recv(self, wr_id: int, sges: Sequence[tuple[int, int, int]] = ()) -> None:
        """Posts a Receive; a piece of memory is (key, va, length).

        OSError: ENOMEM, the queue is full; EINVAL, too many pieces. The memory is looked at only
        when a message needs it.
        """
    def set_limit(self, limit: int) -> None:
        """Asks for one event SRQ_LIMIT_REACHED when fewer Receives are left; 0: none."""

class WorkRequest:
    """Describes a send request for `QueuePair.post_sends`; it may be posted many times."""

    def __init__(
        self,
        wr_id: int,
        operation: str,
        sges: Sequence[tuple[int, int, int]] = (),
        *,
        inline: bytes | None = None,
        flags: Iterable[str] = ("signaled",),
        imm: int = 0,
        remote_va: int = 0,
        rkey: int = 0,
        compare: int = 0,
        swap_add: int = 0,
        src: str | None = None,
        dst: str | None = None,
        sport: int | None = None,
        remote_qp: int = 0,
        remote_qkey: int = 0,
    ) -> None:
        """Makes a request.

        operation: one of `OPERATIONS`. sges: local memory, as (key, va, length). inline: bytes that
        are copied now, instead of sges. flags: of signaled (completes with an entry), solicited,
        fence. imm: immediate data, or the key to invalidate. remote_va, rkey: of the peer's memory,
        for READ, WRITE and atomics. compare, swap_add: operands of atomics. src to remote_qkey: the
        way of a datagram (UD and GSI).
        """

class QueuePair:
    """Represents one end of a connection (RC, UC), or of datagrams (UD, GSI). A piece of memory is
    (key, va, length)."""

    def __init__(
        self,
        engine: Engine,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        *,
        pd: ProtectionDomain | None = None,
        srq: SharedReceives | None = None,
        signals_all: bool = False,
        max_send: int = 64,
        max_recv: int = 64,
        max_send_sge: int = 4,
        max_recv_sge: int = 4,
        max_inline: int = 64,
    ) -> None:
        """Makes a queue pair in RESET.

        type: one of `TYPES`. srq: takes its Receives from there. signals_all: every send request
        completes with an entry. max_send, max_recv: requests that its rings hold. OSError: EINVAL;
        ENOMEM; EBUSY, the device has too many, or has a GSI already.
        """
    @property
    def send_cq(self) -> CompletionQueue:
        """Is the queue where its send requests complete."""
    @property
    def recv_cq(self) -> CompletionQueue:
        """Is the queue where its Receives complete."""
    @property
    def srq(self) -> SharedReceives | None:
        """Holds the shared Receives that it takes from, or None."""
    @property
    def number(self) -> int:
        """Is its number (QPN), by which its peer knows it."""
    @property
    def state(self) -> str:
        """Is its state, one of `STATES`."""
    @property
    def drained(self) -> bool:
        """Tells in SQD whether every request that had begun has completed (IBA 10.3.1.5)."""
    @property
    def window(self) -> int:
        """Counts the PSNs that may be in flight now."""
    @property
    def counters(self) -> dict[str, int]:
        """Has its counters: packets, retries, NAKs, ... (native/device/counters.def)."""
    def close(self) -> None:
        """Destroys it at once; nothing more of it completes."""
    def modify(
        self,
        state: str,
        *,
        access: Iterable[str] = (),
        qkey: int = 0,
        pkey: int = 0xFFFF,
        mtu: int = 1024,
        src: str | None = None,
        dst: str | None = None,
        sport: int | None = None,
        tos: int = 0,
        dest_qp: int = 0,
        rq_psn: int = 0,
        sq_psn: int = 0,
        max_dest_rd_atomic: int = 4,
        max_rd_atomic: int = 4,
        min_rnr_timer: int = 12,
        timeout: int = 14,
        retry_count: int = 7,
        rnr_retry: int = 7,
        optional: Iterable[str] = (),
    ) -> None:
        """Moves it to another state, or changes attributes in this one (IBA 10.3.1).

        What a transition takes: INIT: access, qkey (UD), pkey. RTR: mtu and, except for UD and GSI,
        src, dst, sport, tos, dest_qp, rq_psn, max_dest_rd_atomic, min_rnr_timer. RTS from RTR:
        sq_psn, timeout, retry_count, rnr_retry, max_rd_atomic. `optional` names more of them, of
        `ATTRIBUTES`. dst: the peer, by default the device itself. timeout: 4.096 us * 2^timeout, 0:
        none. rnr_retry: 7 is for ever. Going to ERR flushes what is posted; going to RESET forgets
        it.

        OSError, with nothing changed: EINVAL, there is no such transition, or an attribute is out
        of range; EBUSY, max_dest_rd_atomic while responses are waiting.
        """
    def post_recv(self, wr_id: int, sges: Sequence[tuple[int, int, int]] = ()) -> None:
        """Posts a Receive. OSError: EINVAL, not in this state or beyond its limits; ENOMEM, the
        ring is full.
        """
    def post_recvs(self, requests: Iterable[tuple[int, Sequence[tuple[int, int, int]]]]) -> None:
        """Posts many Receives, (wr_id, sges), at once. Those before one that fails are posted."""
    def post_sends(self, requests: Iterable[WorkRequest]) -> None:
        """Posts many requests, which share trains. Those before one that fails are posted."""
    def post_send(
        self,
        wr_id: int,
        operation: str,
        sges: Sequence[tuple[int, int, int]] = (),
        *,
        inline: bytes | None = None,
        flags: Iterable[str] = ("signaled",),
        imm: int = 0,
        remote_va: int = 0,
        rkey: int = 0,
        compare: int = 0,
        swap_add: int = 0,
        src: str | None = None,
        dst: str | None = None,
        sport: int | None = None,
        remote_qp: int = 0,
        remote_qkey: int = 0,
    ) -> None:
        """Posts a request; its arguments are those of `WorkRequest`.

        OSError: EINVAL, not in this state, for this type or beyond its limits; ENOMEM, the ring is
        full. In SQE and ERR it completes as flushed at once.
        """

class Engine:
    """Runs a device: queue pairs and regions behind one address. It owns no wire, no thread and no
    clock: packets and now_ns go in; packets, completions and the next timer come out.
    """

    def __init__(
        self,
        max_qp: int = 64,
        max_region: int = 256,
        window_packets: int = 0,
        read_packets: int = 0,
        burst_packets: int = 0,
        first_qp: int = 0,
        last_qp: int = 0,
        next_qp: int = 0,
        iova_space: int = 0,
    ) -> None:
        """Makes a device.

        window_packets: PSNs of one queue pair in flight at most (0: 256). read_packets: responses
        that one READ request asks for at most, rounded up to a power of two (0: 32). burst_packets:
        of one queue pair in a row while others wait (0: 16). first_qp, last_qp, next_qp: numbers of
        queue pairs, and which comes first (0: all there are). iova_space: bytes of addresses for
        windows (0: 256 TiB).
        """
    @property
    def counters(self) -> dict[str, int]:
        """Has the device's counters, of all queue pairs together (native/device/counters.def)."""
    @property
    def source(self) -> str:
        """Is the address that its packets come from."""
    @property
    def sport(self) -> int:
        """Is the UDP port that its packets come from."""
    @property
    def translations(self) -> tuple[int, int]:
        """Counts hits and misses of the translation cache, through which windows are used."""
    @property
    def next_timer(self) -> int | None:
        """Is the time to call `transmit` even if nothing else happens; None: not at all."""
    @property
    def domain(self) -> ProtectionDomain:
        """Is the protection domain of all that is made without another."""
    def poll_events(self) -> list[tuple[str, int]]:
        """Takes all events that belong to no request: (one of `EVENTS`, queue pair)."""
    def register(
        self,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
        key: int = 0,
    ) -> Region:
        """Makes a `Region`."""
    def create_qp(
        self,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        **init: Any,
    ) -> QueuePair:
        """Makes a `QueuePair`."""
    def receive(self, packet: bytes, now_ns: int) -> bool:
        """Takes one packet, from its IP header on. Returns False if it is no RoCE at all; one whose
        ICRC is wrong is dropped.
        """
    def transmit(self, now_ns: int, count: int = 1) -> list[bytes]:
        """Returns up to `count` packets that are to be sent now, each from its IP header to its
        ICRC. Queue pairs take turns; timers that are due run first.
        """
