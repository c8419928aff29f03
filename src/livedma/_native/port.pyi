from livedma._native.rdma import CompletionQueue, Engine

KINDS: dict[str, int]
SOCKET_BUFFER_BYTES: int

class Port(Engine):
    port_kind: str
    packet_errno: int
    slot: int
    is_shared: bool
    def __init__(
        self,
        address: str,
        *,
        scope: int = 0,
        interface: int = 0,
        kind: str = "auto",
        max_qp: int = 16384,
        max_region: int = 65536,
        window_packets: int = 0,
        spin_us: int = 50,
        share: object = None,
    ) -> None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def wait(
        self, cq: CompletionQueue, timeout: float | None = None, spin: float = 0.0
    ) -> bool: ...
    def fileno(self) -> int: ...
    def next_event(self) -> CompletionQueue | None: ...
    def open_queues(self) -> list[CompletionQueue]: ...
    @property
    def port_counters(self) -> dict[str, int]: ...
