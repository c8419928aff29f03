# SPDX-License-Identifier: BSD-2-Clause
"""Puts the device on a wire. Contracts: native/port/port.h, native/port/share.h."""

from livedma._native.rdma import CompletionQueue, Engine

#: How packets come in: `auto` is `packet` where that is possible, else `udp`.
KINDS: dict[str, int]
#: Bytes that a port asks the system for, each way; it may get less.
SOCKET_BUFFER_BYTES: int

class Port(Engine):
    """Runs a device behind a socket, with a thread that serves it. Any thread may make all calls.

    A thread that waits for a completion serves the port itself meanwhile, and the port's own thread
    stands aside: no wake-up lies between a packet and the thread that waits for it.
    """

    port_kind: str  #: "udp" or "packet"
    packet_errno: int  #: why "auto" chose "udp" instead of "packet"; otherwise 0
    slot: int  #: its number among those that share the address; 0 if it is the port's alone
    is_shared: bool  #: whether the address is shared with other processes
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
    ) -> None:
        """Opens a port at one of this host's addresses.

        interface: the index of the one that has the address. kind: one of `KINDS`; "udp" needs no
        privilege, but verifies only 16 of the ICRC's 32 bits over IPv4; "packet" verifies all.
        spin_us: how long at most the port's thread looks for packets before it sleeps. share: a
        capsule of an ldma_share, with which other processes share the address. OSError: nothing is
        left open.
        """
    @property
    def closed(self) -> bool:
        """Tells whether it is closed, or about to be."""
    def close(self) -> None:
        """Closes what was made on it, then ends the thread and the device. Calls that wait get an
        error.
        """
    def wait(self, cq: CompletionQueue, timeout: float | None = None, spin: float = 0.0) -> bool:
        """Waits until the queue has a completion: serves the port for `spin` seconds, then sleeps.
        Returns False if `timeout` seconds went by.
        """
    def fileno(self) -> int:
        """Returns a descriptor that becomes readable when an armed queue has its event. It is for
        polling only; `next_event` clears it.
        """
    def next_event(self) -> CompletionQueue | None:
        """Returns the next queue whose event came, or None."""
    def open_queues(self) -> list[CompletionQueue]:
        """Returns the completion queues that report here."""
    @property
    def port_counters(self) -> dict[str, int]:
        """Has the port's own counters: trains, datagrams that are no RoCE, packets that found
        a socket full, time that it was busy, ... Those of the device are in `counters`.
        """
