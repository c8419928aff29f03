# SPDX-License-Identifier: BSD-2-Clause
"""How fast the guard drops a flood, against an XDP program that only drops.

The same generator sends to a veth end, pinned to one core, which also runs the receiver's XDP: the
rate of sending is the rate of sending and dropping. Rounds alternate, so that noise
meets all alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.traffic import Flow, frame_flow, packet_socket
from tests.xdp import DROP, TinyXdp

from livedma.capture.guard import Guard
from livedma.capture.guard_rule import Rule, parse_source
from livedma.lab.hosts import Host, two_hosts

OTHERS = [Rule("allow", parse_source(f"192.0.2.{i}"), (i, i + 64)) for i in range(63)]
UNKNOWN = Rule("drop", qps="unknown")
LIMIT = Rule("limit", rate=1000, burst=1)


def send_rate(host: Host, flow: Flow, count: int) -> float:
    def send() -> float:
        os.sched_setaffinity(0, {0})
        with packet_socket(host) as sock:
            start_s = time.perf_counter()
            flow.send(sock, count, repeat=True)
            return count / (time.perf_counter() - start_s)

    return host.start(send).result()


@contextmanager
def guarded(host: Host, rules: list[Rule], expected: int) -> Iterator[None]:
    with host.inside(), Guard(host.iface) as guard:
        guard.replace(rules)
        yield
        dropped = guard.status().rules[-1][1].dropped
        guard.off()
    if dropped < 0.9 * expected:
        raise SystemExit(f"the guard dropped {dropped:,} of {expected:,} packets")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packets", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with two_hosts() as (sender, receiver):
        flow = frame_flow(sender, receiver, dest_qp=0xABCDE)
        kinds: dict[str, Callable[[], AbstractContextManager[object]]] = {
            "XDP that only drops": lambda: TinyXdp(receiver, DROP),
            "guard: drop --qp unknown": lambda: guarded(receiver, [UNKNOWN], args.packets),
            "guard: the same as rule 64": lambda: guarded(
                receiver, [*OTHERS, UNKNOWN], args.packets
            ),
            "guard: limit 1000/s": lambda: guarded(receiver, [LIMIT], args.packets),
        }
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind, start in kinds.items():
                with start():
                    rates[kind].append(send_rate(sender, flow, args.packets))
        limit = statistics.median(rates["XDP that only drops"])
        for kind, found in rates.items():
            rate = statistics.median(found)
            print(
                f"{kind:28} {rate / 1e6:5.2f} M packets/s {rate / limit:6.1%}"
                f"  +{(1 / rate - 1 / limit) * 1e9:4.0f} ns"
            )


if __name__ == "__main__":
    main()
