"""Two hosts for each test, and captures on them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from livedma.lab.hosts import Host, two_hosts


def cannot(reason: str) -> None:
    """Skips, unless every test is required to run."""
    if os.environ.get("LIVEDMA_REQUIRE") == "all":
        pytest.fail(f"required, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def bpf() -> None:
    """Needs the privilege to load BPF programs and to make namespaces."""
    if os.geteuid() != 0:
        cannot("BPF programs and namespaces need root")
    from livedma._native.bpf import CaptureSession

    try:
        CaptureSession(rx=True, tx=False).close()
    except OSError as error:
        cannot(f"BPF programs cannot be loaded: {error}")


@pytest.fixture
def hosts(bpf: None) -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


@dataclass(frozen=True)
class Seen:
    """What a test asks about a captured packet; outlives the batch."""

    psn: int
    opcode: int
    dest_qp: int
    icrc_ok: bool | None
    frame: bytes
    length: int
    direction: str
    time_ns: int


@dataclass
class Tap:
    """A capture session on a host's interface, and what it saw so far."""

    session: Any
    host: Host
    seen: list[Seen] = field(default_factory=list)

    def read(self, expected: int, timeout_s: float = 5.0) -> list[Seen]:
        """Reads until so many packets came in all, or none came for a while."""
        from livedma._native.wire import Batch

        batch = Batch(4096, 4096 * 4096)
        end_s = time.monotonic() + timeout_s
        while len(self.seen) < expected and time.monotonic() < end_s:
            if self.session.poll(batch, 50):
                end_s = time.monotonic() + timeout_s
            for packet in batch:
                self.seen.append(
                    Seen(
                        packet.psn,
                        packet.opcode,
                        packet.dest_qp,
                        packet.icrc_ok,
                        packet.frame,
                        packet.length,
                        packet.to_dict()["direction"],
                        packet.time_ns,
                    )
                )
        return self.seen

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.session.counters()
        assert counters["matched"] == (
            counters["sampled_out"]
            + counters["recorded"]
            + counters["ring_dropped"]
            + counters["unreadable"]
        )
        return counters


@pytest.fixture
def tap() -> Iterator[Callable[..., Tap]]:
    """Makes taps; direction "rx" or "tx", hook "xdp" or "tc"."""
    from livedma._native.bpf import CaptureSession

    sessions = []

    def make(host: Host, direction: str = "rx", hook: str = "xdp", **options: Any) -> Tap:
        session = CaptureSession(
            rx=direction == "rx", tx=direction == "tx", rx_by_tc=hook == "tc", **options
        )
        sessions.append(session)
        with host.inside():
            session.attach(host.ifindex)
        return Tap(session, host)

    yield make
    for session in sessions:
        session.close()
