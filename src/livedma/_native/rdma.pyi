from collections.abc import Iterable, Sequence
from typing import Any

TYPES: dict[str, int]
STATES: tuple[str, ...]
OPERATIONS: dict[str, int]
COMPLETED: dict[int, str]
STATUSES: dict[int, str]
EVENTS: dict[int, str]
ATTRIBUTES: dict[str, int]

class Completion:
    @property
    def wr_id(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def qp(self) -> int: ...
    @property
    def src_qp(self) -> int: ...
    @property
    def imm(self) -> int | None: ...
    @property
    def invalidated(self) -> int | None: ...
    @property
    def solicited(self) -> bool: ...

class ProtectionDomain:
    def close(self) -> None: ...

class CompletionQueue:
    def __init__(self, capacity: int = 1024, engine: Engine | None = None) -> None: ...
    def close(self) -> None: ...
    @property
    def lost(self) -> int: ...
    def poll(self, count: int = 64) -> list[Completion]: ...
    def arm(self, solicited_only: bool = False) -> None: ...
    def take_event(self) -> bool: ...

class Region:
    def __init__(
        self,
        engine: Engine,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
        key: int = 0,
    ) -> None: ...
    @property
    def key(self) -> int: ...
    @property
    def va(self) -> int: ...
    @property
    def length(self) -> int: ...
    def close(self) -> None: ...

class SharedReceives:
    def __init__(
        self,
        pd: ProtectionDomain,
        depth: int = 128,
        max_sge: int = 4,
        *,
        engine: Engine | None = None,
    ) -> None: ...
    def post_recv(self, wr_id: int, sges: Sequence[tuple[int, int, int]] = ()) -> None: ...
    def set_limit(self, limit: int) -> None: ...

class WorkRequest:
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
    ) -> None: ...

class QueuePair:
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
    ) -> None: ...
    @property
    def send_cq(self) -> CompletionQueue: ...
    @property
    def recv_cq(self) -> CompletionQueue: ...
    @property
    def srq(self) -> SharedReceives | None: ...
    @property
    def number(self) -> int: ...
    @property
    def state(self) -> str: ...
    @property
    def drained(self) -> bool: ...
    @property
    def window(self) -> int: ...
    @property
    def counters(self) -> dict[str, int]: ...
    def close(self) -> None: ...
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
    ) -> None: ...
    def post_recv(self, wr_id: int, sges: Sequence[tuple[int, int, int]] = ()) -> None: ...
    def post_recvs(
        self, requests: Iterable[tuple[int, Sequence[tuple[int, int, int]]]]
    ) -> None: ...
    def post_sends(self, requests: Iterable[WorkRequest]) -> None: ...
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
    ) -> None: ...

class Engine:
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
    ) -> None: ...
    @property
    def counters(self) -> dict[str, int]: ...
    @property
    def source(self) -> str: ...
    @property
    def sport(self) -> int: ...
    @property
    def translations(self) -> tuple[int, int]: ...
    @property
    def next_timer(self) -> int | None: ...
    @property
    def domain(self) -> ProtectionDomain: ...
    def poll_events(self) -> list[tuple[str, int]]: ...
    def register(
        self,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
        key: int = 0,
    ) -> Region: ...
    def create_qp(
        self,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        **init: Any,
    ) -> QueuePair: ...
    def receive(self, packet: bytes, now_ns: int) -> bool: ...
    def transmit(self, now_ns: int, count: int = 1) -> list[bytes]: ...
