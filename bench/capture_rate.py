"""How fast capture takes 128 bytes of every packet, against an XDP program that only drops.

The same generator sends to a veth end, pinned to one core; the consumer has the other. The limit's
verdict is to drop, so the capture that is compared with it drops, too, after recording: what the
kernel's stack does with a packet that is passed on is not capture's work. What passing on costs is
measured beside it, with and without capture.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time

from livedma._native.bpf import CaptureSession
from livedma._native.traffic import Flow
from livedma._native.wire import Batch
from livedma.lab.hosts import Host, two_hosts
from livedma.lab.traffic import frame_flow, packet_socket
from livedma.lab.xdp import DROP, PASS, TinyXdp

SENDER_CPU, CONSUMER_CPU = 0, 1


class Consumer:
    """Reads a session on the other core until it is told to end."""

    def __init__(self, session: CaptureSession) -> None:
        self.packets = 0
        self._session = session
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        os.sched_setaffinity(0, {CONSUMER_CPU % os.cpu_count()})
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


def with_capture(sender: Host, receiver: Host, flow: Flow, count: int, discard: bool) -> float:
    session = CaptureSession(rx=True, tx=False, snaplen=128, discard=discard)
    try:
        with receiver.inside():
            session.attach(receiver.ifindex)
        consumer = Consumer(session)
        rate = send_rate(sender, flow, count)
        got, counters = consumer.end(), session.counters()
        if got != count or counters["ring_dropped"]:
            lost = counters["ring_dropped"]
            print(f"not without loss: {got:,} of {count:,} packets, {lost:,} lost to a full ring")
        return rate
    finally:
        session.close()


def measure(count: int, repeats: int, payload_bytes: int) -> dict[str, float]:
    """Medians in packets/s, of runs taken in turn."""
    runs: dict[str, list[float]] = {}
    with two_hosts() as (sender, receiver):
        flow = frame_flow(sender, receiver, payload_bytes=payload_bytes)
        ways = {
            "XDP drop (limit)": lambda: with_program(sender, receiver, flow, count, DROP),
            "capture, then drop": lambda: with_capture(sender, receiver, flow, count, True),
            "XDP pass": lambda: with_program(sender, receiver, flow, count, PASS),
            "capture, then pass": lambda: with_capture(sender, receiver, flow, count, False),
        }
        for _ in range(repeats):
            for name, way in ways.items():
                runs.setdefault(name, []).append(way())
    return {name: statistics.median(rates) for name, rates in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--payload", type=int, default=64)
    args = parser.parse_args()
    medians = measure(args.count, args.repeats, args.payload)
    for name, rate in medians.items():
        print(f"{name:20} {rate:12,.0f} packets/s")
    dropped = medians["capture, then drop"] / medians["XDP drop (limit)"]
    passed = medians["capture, then pass"] / medians["XDP pass"]
    print(f"capture / limit: {dropped:.2f} with the verdict drop, {passed:.2f} with pass")


if __name__ == "__main__":
    main()
