# SPDX-License-Identifier: BSD-2-Clause
"""What growing costs: mapping 16 MiB against doing so by hand, and what peers feel of it.

A client streams WRITEs, then READs, into a window of a server that rests, or extends and shrinks
it by 16 MiB without a pause, on the one core that its device has, too. The longest time in which
nothing completed is compared, turn by turn.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.pair import LIMIT_S, Link, run_pair
from bench.report import ROUNDS, Line
from livedma._native.perf import Measurement
from livedma._native.rdma import Engine
from livedma.memory import Window
from livedma.rdma import Device, cm

STEP = 16 << 20
ALLOWED_MS = 10.0  #: that an extend may add
_PORT, _ROCE_PORT = 7322, 4791
_WHERE = struct.Struct("!QI")
_REST, _EXTEND, _END = b"r", b"e", b"."
_MESSAGE, _MESSAGES, _DEPTH = 64 << 10, 16_000, 16
_PAGE = 4096


def extend_ms(window: Window) -> float:
    start_s = time.perf_counter()
    window.extend(STEP)
    return (time.perf_counter() - start_s) * 1000


def by_hand_ms() -> float:
    """Anonymous memory of this process alone, one byte of each page written."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    start_s = time.perf_counter()
    with mmap.mmap(-1, STEP, flags=flags) as memory:
        memory[::_PAGE] = bytes(STEP // _PAGE)
        return (time.perf_counter() - start_s) * 1000


def growing(rounds: int = 4 * ROUNDS) -> Iterator[Line]:
    ours, by_hand = [], []
    with Window(Engine(), 4 * STEP) as window:
        for _ in range(rounds):
            ours.append(extend_ms(window))
            window.shrink()
            by_hand.append(by_hand_ms())
    ratio = statistics.median(a / b for a, b in zip(ours, by_hand, strict=True))
    mine, other = statistics.median(ours), statistics.median(by_hand)
    against = f"mapped, touched by hand {other:.1f} ms"
    yield Line("a window grows by 16 MiB", f"{mine:.1f} ms", against, ratio, 2, is_cost=True)


def pauses(link: Link, rounds: int = ROUNDS) -> Iterator[Line]:
    """Of the median turn; the worst of all is said below."""
    server, client = (
        [sys.executable, "-m", "bench.windows", role, link.address] for role in ("serve", "stream")
    )
    found = json.loads(run_pair(link, server, [*client, str(rounds)], ("udp", _ROCE_PORT)))
    for operation, seen in found.items():
        resting, extending = seen["resting"], seen["extending"]
        added = statistics.median(a - b for a, b in zip(extending, resting, strict=True))
        yield Line(
            f"longest pause of {operation} while it grows, {link.name}",
            f"{statistics.median(extending):.1f} ms",
            f"at rest {statistics.median(resting):.1f}, may add {ALLOWED_MS:.0f} ms",
            max(added, 0) / ALLOWED_MS,
            1,
            is_cost=True,
        )
    print(
        f"{link.name}: longest pauses of all turns: "
        + ", ".join(
            f"{operation} {max(seen['extending']):.1f} ms (at rest {max(seen['resting']):.1f} ms)"
            for operation, seen in found.items()
        )
    )


def serve(address: str) -> None:
    """Until a client says that it was the last."""
    with Device(address) as device, device.protection_domain() as pd:
        rights = ("remote_write", "remote_read")
        with pd.window(8 * STEP, *rights, mapped=STEP) as window, cm.listen(device, _PORT) as all_:
            kept = window.take(STEP)
            for request in all_:
                where = _WHERE.pack(kept.va, kept.rkey)
                with request.accept(pd=pd, private_data=where, timeout=LIMIT_S) as connection:
                    _serve_one(window, connection, request.private_data[:1])
                if request.private_data[:1] == _END:
                    break


def _serve_one(window: Window, connection: cm.Connection, mode: bytes) -> None:
    ended = threading.Event()

    def grow_and_shrink() -> None:
        while mode == _EXTEND and not ended.is_set():
            window.extend(STEP)
            window.shrink(STEP)

    thread = threading.Thread(target=grow_and_shrink)
    thread.start()
    connection.wait_disconnected(LIMIT_S)
    ended.set()
    thread.join()


def stream(server: str, rounds: int) -> None:
    """Prints the longest pauses, in milliseconds."""
    names = {_REST: "resting", _EXTEND: "extending"}
    found = {o: {name: [] for name in names.values()} for o in ("WRITE", "READ")}
    with Device.towards(server) as device:
        for _ in range(rounds):
            for operation, seen in found.items():
                for mode, name in names.items():
                    seen[name].append(_longest_pause_ms(device, server, operation, mode))
        cm.connect(device, server, _PORT, private_data=_END, timeout=LIMIT_S).disconnect()
    print(json.dumps(found))


def _longest_pause_ms(device: Device, server: str, operation: str, mode: bytes) -> float:
    with cm.connect(device, server, _PORT, private_data=mode, timeout=LIMIT_S) as connection:
        va, rkey = _WHERE.unpack_from(connection.private_data)
        memory = bytearray(2 * _MESSAGE)
        region = connection.pd.register(memory)
        run = Measurement(
            device.engine,
            connection.cq,
            [(connection.qp, va, rkey)],
            operation,
            (region.lkey, region.va, memoryview(memory)),
            _MESSAGE,
            iterations=_MESSAGES,
            depth=_DEPTH,
            span=STEP,
            spin=10,
            keeps_times=True,
        )
        run.stream()
        connection.disconnect(timeout=LIMIT_S)
        return run.longest_gap_ns / 1e6


def lines() -> Iterator[Line]:
    yield from growing()
    yield from pauses(Link("lo", "127.0.0.2", "lo"))


def _stand_out() -> None:
    """What else this machine does is not the question; threads of this process are equal."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        os.setsid()  # sessions share the processors, where the system groups them
        Path("/proc/self/autogroup").write_text("-20")


def main() -> None:
    match sys.argv[1:]:
        case ["serve", address]:
            _stand_out()
            serve(address)
        case ["stream", server, rounds]:
            _stand_out()
            stream(server, int(rounds))
        case _:
            for line in lines():
                print(line)


if __name__ == "__main__":
    main()
