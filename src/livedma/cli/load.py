# SPDX-License-Identifier: BSD-2-Clause
"""livedma load: runs many storage sessions against an NFS server, and measures them."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from livedma.cli import units
from livedma.cli.interrupts import Interrupts
from livedma.cli.progress import Progress

if TYPE_CHECKING:
    from livedma.nfs.load import Interval, Plan, Result, Runner
    from livedma.rpc.client import ConnectionLost

_SPIN_S = 200e-6

_EXAMPLES = """examples:
  livedma load 10.0.0.1 --sessions 16                    64 KiB reads over RDMA, for ten seconds
  livedma load 10.0.0.1 --sessions 64 --ramp 4/s --seconds 30 --rw mix
  livedma load 10.0.0.1 --sessions 8 --rate 20000        open loop: latency from the intended start
  livedma load 10.0.0.1 --sessions 64 --tide 60s --seconds 600      load that comes and goes
  livedma load 10.0.0.1 --proto tcp --dir /export --size 4KiB --depth 32 --json

Each session has a file of its own in --dir, which it writes before it is measured; all that is read
is compared with what was written. The files are removed at the end. MB are 10^6 bytes."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "load",
        help="many storage sessions against an NFS server, with latencies",
        description="Reads and writes files of an NFSv4.1 server through many sessions at once, "
        "verifies the data and measures what each session gets.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("server", metavar="ADDR", help="the server's address or name")
    add("--sessions", type=units.positive, default=1, metavar="N", help="sessions (1)")
    add("--ramp", type=_ramp, metavar="N/s", help="begin so many sessions a second (all at once)")
    add(
        "--tide",
        type=units.duration,
        metavar="TIME",
        help="let sessions go up and down in this time, between an eighth and all, say 60s",
    )
    add(
        "--depth",
        type=units.positive,
        default=4,
        metavar="D",
        help="operations under way in a session (4)",
    )
    add("--size", type=units.size, default=65536, help="of an operation: 4KiB, 1MiB (64KiB)")
    add(
        "--rw",
        choices=("read", "write", "mix"),
        default="read",
        help="what to do; mix: half of each (read)",
    )
    add("--seconds", type=_number, default=10.0, metavar="S", help="how long to measure (10)")
    add("--connections", type=units.positive, default=1, metavar="N", help="shared by all (1)")
    add(
        "--rate",
        type=_number,
        metavar="OPS",
        help="operations a second of all sessions together, whatever the answers take; without, "
        "each follows the one before",
    )
    add(
        "--pattern",
        choices=("random", "sequential"),
        default="random",
        help="where in the file (random)",
    )
    add("--proto", choices=("rdma", "tcp"), default="rdma", help="how to get there (rdma)")
    add("--port", type=units.port, help="of the server (20049, tcp: 2049)")
    add("--dir", default="/", metavar="PATH", help="where to make the files (/)")
    add("--file-size", type=units.size, default=0, help="of each session's file (1MiB or more)")
    add(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare what is read with what was written (yes)",
    )
    add(
        "--follow",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="rdma: open connections and move sessions there if the server asks for it (yes)",
    )
    add("--seed", type=_seed, metavar="N", help="the same places and data each time (random)")
    add("-I", "--source", metavar="ADDR", help="rdma: from this address of this host")
    add(
        "--via",
        choices=("auto", "udp", "packet"),
        default="auto",
        help="rdma: how packets come in (auto: packet with CAP_NET_RAW, else udp)",
    )
    add("--json", action="store_true", help="one object a line: intervals, then the total")
    add(
        "--driven",
        action="store_true",
        help="with --json: standard input says how many sessions there are and where intervals "
        "end, by lines such as `sessions 8` and `interval`; --sessions is the most",
    )
    parser.set_defaults(run=run, wrong_use=parser.error)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 0 or more")
    return int(text)


def _ramp(text: str) -> float:
    return _number(text.removesuffix("/s"))


def _plan(args: argparse.Namespace) -> Plan:
    from livedma.nfs.load import Plan, PlanError

    if args.proto == "tcp" and args.source:
        args.wrong_use("--source is for RDMA: over TCP the route decides")
    if args.driven and (args.ramp is not None or args.tide is not None or not args.json):
        args.wrong_use("--driven goes with --json, and without --ramp and --tide")
    try:
        return Plan(
            sessions=args.sessions,
            depth=args.depth,
            size=args.size,
            rw=args.rw,
            seconds=args.seconds,
            ramp=args.ramp,
            rate=args.rate,
            connections=args.connections,
            pattern=args.pattern,
            proto=args.proto,
            file_bytes=args.file_size,
            verify=args.verify,
            directory=args.dir,
            seed=args.seed,
            follow=args.follow,
            tide=args.tide,
        )
    except PlanError as error:
        args.wrong_use(str(error))
        raise


def run(args: argparse.Namespace) -> int:
    plan = _plan(args)

    from livedma.cli import load_page as page
    from livedma.cli.load_shades import Shades
    from livedma.cli.paint import Paint
    from livedma.nfs.client.client import PORTS
    from livedma.nfs.load import Runner
    from livedma.nfs.load.driven import Driven, orders_from_stdin
    from livedma.rpc.client import ConnectionLost
    from livedma.tools.endpoint import device_towards, resolve

    server = resolve(args.server)
    port = args.port or PORTS[plan.proto]
    progress, interrupts = Progress(), Interrupts()
    shades = Shades(Paint.on_output())
    if not args.json:
        print(shades.heading(page.heading(plan, server)))
        print(page.header(shades), flush=True)

    def show(interval: Interval) -> None:
        progress.clear()
        line = json.dumps(interval.as_json()) if args.json else page.row(interval, shades)
        print(line, flush=True)

    left: list[str] = []
    with ExitStack() as stack:
        device = None
        if plan.proto == "rdma":
            source = None if args.source is None else resolve(args.source)
            device = stack.enter_context(device_towards(server, _SPIN_S, source, args.via))

        async def measure() -> Result | None:
            runner: Runner
            if args.driven:
                orders = await orders_from_stdin()
                runner = Driven(
                    plan, server, port, device=device, spin=_SPIN_S, orders=orders, answer=_answer
                )
            else:
                runner = Runner(
                    plan, server, port, device=device, spin=_SPIN_S, show=show, tell=progress.tell
                )
            try:
                return await _interruptible(runner, interrupts)
            finally:
                left.extend(runner.left)

        try:
            with progress.waiting(f"connecting to {server} port {port}"):
                result = asyncio.run(measure())
        except ConnectionLost as error:
            raise _advised(error, plan.proto, server, port) from None
        finally:
            if left:
                print(f"livedma: {page.left(left)}", file=sys.stderr)
    if result is None:
        print(f"livedma: {interrupts.words} before anything was measured", file=sys.stderr)
        return interrupts.status
    if args.json:
        about = {"server": server, "port": port, "plan": plan.as_json()}
        print(json.dumps({**about, **result.as_json()}))
    else:
        print("\n".join(shades.totals(page.totals(result))))
    return interrupts.status or (0 if result.is_clean else 1)


async def _interruptible(runner: Runner, interrupts: Interrupts) -> Result | None:
    """Returns what was measured until the end or a signal; None if the signal came before that."""
    task = asyncio.create_task(runner.run())

    def stop() -> None:
        if runner.is_measuring:
            runner.stop()
        else:
            task.cancel()

    with interrupts.calling(stop):
        try:
            result = await task
        except asyncio.CancelledError:
            if interrupts.caught is None:
                raise
            return None
    words = [one for one in (interrupts.words, result.ended) if one]
    return replace(result, ended="; ".join(words))


def _answer(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


def _advised(error: ConnectionLost, proto: str, server: str, port: int) -> ConnectionLost:
    """Returns the error with advice added. A subclass says more itself: it is returned as it is."""
    from livedma.rpc.client import ConnectionLost

    if type(error) is not ConnectionLost:
        return error
    other = "tcp" if proto == "rdma" else "rdma"
    advice = f"see if an NFS server listens at {server} on port {port}, or try --proto {other}"
    return ConnectionLost(f"{error}: {advice}")
