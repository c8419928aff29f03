# SPDX-License-Identifier: BSD-2-Clause
"""livedma perf: measures bandwidth and latency of the device."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from livedma.cli import units
from livedma.cli.progress import Progress
from livedma.errors import LivedmaError
from livedma.tools.perf_plan import ALL_SIZES, MEMORY_KINDS, Plan, PlanError
from livedma.wire.words import amount

_TESTS = tuple(
    f"{operation}-{kind}" for operation in ("send", "write", "read") for kind in ("bw", "lat")
)
_ALWAYS_S = 1e6
_THREAD_S = 200e-6  # how long the device's own thread spins while no measurement runs

_EXAMPLES = """examples:
  livedma perf write-bw                        the server: prints its address and waits
  livedma perf write-bw 10.0.0.1               the client, which measures; its options count
  livedma perf read-bw 10.0.0.1 --size 1MiB --iters 500 --qps 4
  livedma perf send-lat 10.0.0.1 --all --json

Columns as perftest's (ib_write_bw, ...): MB are 2^20 bytes; the latency of send and write is half a
round trip. At 127.0.0.1 the client takes the next free loopback address."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "perf",
        help="bandwidth and latency, with perftest's columns",
        description="Measures SEND, WRITE and READ between two devices. Without ADDR it is the "
        "server, which serves one client and ends.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("test", metavar="TEST", choices=_TESTS, help=", ".join(_TESTS))
    add("server", metavar="ADDR", nargs="?", help="the server's address or name")
    add("-s", "--size", type=units.size, help="of a message: 64, 4KiB, 1MiB (bw: 64KiB, lat: 2)")
    add("-a", "--all", action="store_true", help="all sizes from 2 to 8MiB")
    add(
        "-n",
        "--iters",
        type=units.positive,
        metavar="N",
        help="messages of each queue pair (1000; write-bw: 5000)",
    )
    add("-q", "--qps", type=units.positive, default=1, metavar="N", help="queue pairs, bw only (1)")
    add(
        "-t",
        "--depth",
        type=units.positive,
        metavar="N",
        help="messages under way on a queue pair (bw: 128)",
    )
    add("-m", "--mtu", type=int, choices=units.MTUS, help="of RDMA (the largest)")
    add("-p", "--port", type=units.port, default=18515, help="of the server (18515)")
    add("-I", "--source", metavar="ADDR", help="client: from this address of this host")
    add("--listen", metavar="ADDR", help="server: at this address of this host")
    add("--forever", action="store_true", help="server: serve one client after the other")
    add(
        "--spin",
        type=_seconds,
        metavar="S",
        help="look for packets so many seconds before sleeping (always; 0: not at all)",
    )
    add(
        "--via",
        choices=("auto", "udp", "packet"),
        default="auto",
        help="how packets come in (auto: packet with CAP_NET_RAW, else udp)",
    )
    add(
        "--alone",
        action="store_true",
        help="share the address with no other process, which spares a look at every packet",
    )
    add(
        "--memory",
        choices=MEMORY_KINDS,
        default="pinned",
        help="of this side: a region, pinned or on demand; a window with granules of 4 KiB or "
        "2 MiB; a region over such memory as those have, to compare (pinned)",
    )
    add(
        "--span",
        type=units.size,
        default=0,
        help="bw: go round so much of the server's memory (all to one place)",
    )
    add("--gbits", action="store_true", help="Gb/sec instead of MB/sec")
    add("--json", action="store_true", help="one object a line, in bytes, seconds and microseconds")
    parser.set_defaults(run=run, wrong_use=parser.error)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def run(args: argparse.Namespace) -> int:
    if args.server is None:
        if args.source:
            args.wrong_use("-I is for the client: a server has --listen ADDR")
        return _serve(args)
    if args.listen or args.forever:
        args.wrong_use("--listen and --forever are for the server, which takes no ADDR")
    return _measure(args)


def _spin(args: argparse.Namespace) -> float:
    if args.spin is not None:
        return float(args.spin)
    # On one CPU a side that spins takes the other side's time.
    return _ALWAYS_S if len(os.sched_getaffinity(0)) > 1 else 0.0


def _share(args: argparse.Namespace) -> bool | None:
    return False if args.alone else None


def _plan(args: argparse.Namespace) -> Plan:
    operation, _, kind = args.test.partition("-")
    if args.all and args.size:
        args.wrong_use("either --size or --all")
    sizes = ALL_SIZES if args.all else (args.size or (65536 if kind == "bw" else 2),)
    try:
        return Plan(
            operation=operation,
            kind=kind,
            sizes=sizes,
            iterations=args.iters or (5000 if args.test == "write-bw" else 1000),
            qps=args.qps,
            depth=args.depth or (128 if kind == "bw" else 1),
            span=args.span,
        )
    except PlanError as error:
        args.wrong_use(str(error))
        raise


class _Progress:
    """Shows how far a size has come, in one line of the terminal."""

    def __init__(self, total: int) -> None:
        self._total, self._shown = total, False

    def update(self, size: int, done: int) -> None:
        if sys.stderr.isatty():
            share = 100 * done // self._total
            print(f"\r\x1b[K{size} bytes: {share} %", end="", file=sys.stderr, flush=True)
            self._shown = True

    def clear(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._shown = False


def _measure(args: argparse.Namespace) -> int:
    from livedma.tools.endpoint import device_towards, resolve
    from livedma.tools.perf_client import Client
    from livedma.tools.perf_report import header

    plan, spin, peer = _plan(args), _spin(args), resolve(args.server)
    source = None if args.source is None else resolve(args.source)
    progress, waiting = _Progress(plan.total), Progress()
    with (
        device_towards(peer, min(spin, _THREAD_S), source, args.via, share=_share(args)) as device,
        waiting.waiting(f"connecting to {peer} port {args.port}"),
        Client(
            device,
            peer,
            args.port,
            plan,
            mtu=args.mtu,
            spin=spin,
            memory=args.memory,
            tick=progress.update,
        ) as client,
    ):
        waiting.clear()
        about = {
            "test": plan.test,
            "client": device.address,
            "server": peer,
            "qps": plan.qps,
            "mtu": client.mtu,
            "depth": plan.depth,
            "port": device.port_kind,
        }
        if not args.json:
            print(
                f"{plan.test} from {device.address} to {peer}: {amount(plan.qps, 'queue pair')}, "
                f"MTU {client.mtu}, depth {plan.depth}, {device.port_kind} port"
            )
            print(header(plan, args.gbits), flush=True)
        for result in client.results():
            progress.clear()
            line = (
                json.dumps({**about, **result.as_json()}) if args.json else result.row(args.gbits)
            )
            print(line, flush=True)
    return 0


def _serve(args: argparse.Namespace) -> int:
    from livedma.rdma import cm
    from livedma.tools.endpoint import device_at, own_address, resolve
    from livedma.tools.perf_server import serve_one

    def tell(peer: str, plan: Plan, mtu: int) -> None:
        if args.json:
            about = {"client": peer, "test": plan.test, **plan.as_message(), "mtu": mtu}
            print(json.dumps(about), flush=True)
        else:
            sizes = " to ".join(str(n) for n in dict.fromkeys((plan.sizes[0], plan.sizes[-1])))
            print(f"{plan.test} for {peer}: {sizes} bytes, MTU {mtu}", flush=True)

    spin = _spin(args)
    address = own_address() if args.listen is None else resolve(args.listen)
    with (
        device_at(address, min(spin, _THREAD_S), args.via, share=_share(args)) as device,
        cm.listen(device, args.port) as listener,
    ):
        again = "" if args.port == 18515 else f" -p {args.port}"
        _say(f"waiting at {address}: livedma perf {args.test} {address}{again}")
        while True:
            try:
                serve_one(device, listener, spin, tell, args.memory)
            except LivedmaError as error:
                if not args.forever:
                    raise
                _say(str(error))
            if not args.forever:
                return 0


def _say(sentence: str) -> None:
    print(f"livedma: {sentence}", file=sys.stderr, flush=True)
