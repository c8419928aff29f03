# SPDX-License-Identifier: BSD-2-Clause
"""How fast capture takes 128 bytes of every packet, against an XDP program that only drops.

The same generator, pinned to one core, sends to the end of a veth pair; the consumer has the other
core. The frames are addressed to somebody else, so that the kernel's stack discards at once what
capture passes on: what a stack does with packets of its own is not capture's work. A program that
only passes shows how much of the difference the passing on is.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Iterator

from tests.traffic import Flow, packet_socket
from tests.xdp import DROP, PASS, TinyXdp

from bench.report import Line, per_second
from livedma._native.bpf import CaptureSession
from livedma._native.wire import Batch
from livedma.lab.hosts import Host, two_hosts

SENDER_CPU, CONSUMER_CPU = 0, 1
SOMEBODY_ELSE = bytes.fromhex("020000000099")


class Consumer:
    """Reads a session on the other core until it is told to end."""

    def __init__(self, session: CaptureSession) -> None:
        self.packets = 0
        self._session = session
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        os.sched_setaffinity(0, {CONSUMER_CPU})
        batch = Batch(4096, 4096 * 128)
        while not self._ended.is_set():
            self.packets += self._session.poll(batch, 10)
        while added := self._session.poll(batch, 0):
            self.packets += added

    def end(self) -> int:
        self._ended.set()
        self._thread.join()
        return self.packets


def send_rate(host: Host, flow: Flow, count: int) -> float:
    def send() -> float:
        os.sched_setaffinity(0, {SENDER_CPU})
        with packet_socket(host) as sock:
            start_s = time.perf_counter()
            flow.send(sock, count, repeat=True)
            return count / (time.perf_counter() - start_s)

    return host.start(send).result()


def with_program(sender: Host, receiver: Host, flow: Flow, count: int, verdict: int) -> float:
    with TinyXdp(receiver, verdict):
        return send_rate(sender, flow, count)


def with_capture(sender: Host, receiver: Host, flow: Flow, count: int) -> float:
    session = CaptureSession(rx=True, tx=False, snaplen=128)
    try:
        with receiver.inside():
            session.attach(receiver.ifindex)
        consumer = Consumer(session)
        rate = send_rate(sender, flow, count)
        got = consumer.end()
        # A capture that loses packets has no rate.
        return rate if got == count else 0.0
    finally:
        session.close()


def measure(count: int, repeats: int, payload_bytes: int) -> dict[str, list[float]]:
    """Packets/s of each way, run by run; runs are taken in turn and compare turn by turn."""
    rates: dict[str, list[float]] = {}
    with two_hosts() as (sender, receiver):
        link = SOMEBODY_ELSE + sender.mac + b"\x08\x00"
        flow = Flow(sender.ipv4, receiver.ipv4, link=link, payload_bytes=payload_bytes)
        ways = {
            "XDP drop": lambda: with_program(sender, receiver, flow, count, DROP),
            "XDP pass": lambda: with_program(sender, receiver, flow, count, PASS),
            "capture": lambda: with_capture(sender, receiver, flow, count),
        }
        for _ in range(repeats):
            for name, way in ways.items():
                rates.setdefault(name, []).append(way())
    return rates


def ratio(rates: dict[str, list[float]], name: str, limit: str) -> float:
    """The median over turns: what disturbs a whole turn does not count."""
    return statistics.median(
        one / other for one, other in zip(rates[name], rates[limit], strict=True)
    )


def lines() -> Iterator[Line]:
    """For the table of all comparisons."""
    rates = measure(100_000, 15, 96)
    ours, limit = (statistics.median(rates[name]) for name in ("capture", "XDP drop"))
    yield Line(
        "live capture, 128 bytes of each packet",
        per_second(ours),
        f"XDP drop: {per_second(limit)}",
        ratio(rates, "capture", "XDP drop"),
        0.6,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000, help="packets of each run")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--payload", type=int, default=96, help="bytes of each packet")
    args = parser.parse_args()
    rates = measure(args.count, args.repeats, args.payload)
    for name, runs in rates.items():
        print(f"{name:10} {statistics.median(runs):10,.0f} packets/s")
    of_drop, of_pass = (ratio(rates, "capture", limit) for limit in ("XDP drop", "XDP pass"))
    print(f"capture: {of_drop:.2f} of dropping, {of_pass:.2f} of passing")


if __name__ == "__main__":
    main()
