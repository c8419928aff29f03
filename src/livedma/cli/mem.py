# SPDX-License-Identifier: BSD-2-Clause
"""livedma mem: shows what each process pins, and what the host has for DMA."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict
from typing import Any

from livedma.cli.mem_page import clipped, line, page
from livedma.cli.units import positive
from livedma.errors import LivedmaError
from livedma.memory.host import Host, Motion, MotionCounter, Process, Snapshot, advise, look
from livedma.memory.host.advice import LARGE_GRANULE, SMALL_GRANULE, Advice, descriptors
from livedma.memory.host.buddy import Zone, together

_EXAMPLES = """examples:
  livedma mem
  livedma mem $(pgrep -f my-server) --watch
  livedma mem --json | jq '.processes[] | {pid, pinned, locked}'
  livedma mem --json | jq -r '.advice[] | select(.is_wrong) | .fix'
  livedma mem --watch 10 --json >> memory.jsonl

Without root it shows less, and says what it cannot see. Exit status 1 if a process is not there."""
_LONGEST_S = 3600
_CLEAR = "\x1b[H\x1b[J"
_FALLBACK = "counting by /proc/vmstat what that knows"


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "mem",
        help="what each process pins; huge pages, fragmentation, limits",
        description="Shows for the host and each process what is pinned, what is merely locked, "
        "what devices of livedma have mapped, in which granule and with how many descriptors; what "
        "limits it; and, in plain words, what is wrong and the command that mends it.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "pids", metavar="PID", nargs="*", type=positive, help="only these processes"
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=_seconds,
        const=1.0,
        help="again each second, or every so many, with compaction and migration counted by BPF "
        "meanwhile; Ctrl-C ends it",
    )
    parser.add_argument(
        "--json", action="store_true", help="print an object; with --watch, one a line"
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no interval: 0.01 to {_LONGEST_S} seconds. Put PIDs before --watch"
        )
    return seconds


def run(args: argparse.Namespace) -> int:
    if args.watch is not None:
        return _watch(args)
    snapshot = look(pids=args.pids)
    found = advise(snapshot)
    print(json.dumps(_object(snapshot, found, None)) if args.json else page(snapshot, found))
    return 0


def _watch(args: argparse.Namespace) -> int:
    """Looks every `args.watch` seconds, until Ctrl-C or until a process that was asked for ends."""
    is_screen = sys.stdout.isatty() and not args.json
    snapshot, motion = look(pids=args.pids), None
    told: set[tuple[str, tuple[int, ...]]] = set()
    try:
        with MotionCounter() as counter:
            trouble = f"{counter.trouble}; {_FALLBACK}" if counter.trouble else ""
            if trouble and not is_screen:
                print(f"livedma: {trouble}", file=sys.stderr)
            while True:
                found = advise(snapshot)
                if args.json:
                    print(json.dumps(_object(snapshot, found, motion)), flush=True)
                elif is_screen:
                    said = page(snapshot, found, motion, trouble)
                    print(_CLEAR + clipped(said, shutil.get_terminal_size()), end="", flush=True)
                else:
                    print(line(snapshot, motion, _new(found, told)), flush=True)
                time.sleep(args.watch)
                snapshot, motion = look(pids=args.pids), counter.since()
    except KeyboardInterrupt:
        return 0
    except LivedmaError as error:
        print(f"livedma: {error} any more", file=sys.stderr)
        return 0


def _new(found: list[Advice], told: set[tuple[str, tuple[int, ...]]]) -> list[Advice]:
    """Returns what is wrong now and was not before, and updates `told`."""
    wrong = {(advice.name, advice.pids): advice for advice in found if advice.is_wrong}
    new = [advice for key, advice in wrong.items() if key not in told]
    told.clear()
    told.update(wrong)
    return new


def _object(snapshot: Snapshot, found: list[Advice], motion: Motion | None) -> dict[str, Any]:
    return {
        "time": time.time(),
        "host": _host(snapshot.host),
        "processes": [_process(one) for one in snapshot.processes],
        "seen": snapshot.seen,
        "hidden": snapshot.hidden,
        "hidden_ledgers": snapshot.hidden_ledgers,
        "may_hide_others": snapshot.may_hide_others,
        "motion": motion and asdict(motion),
        "advice": [asdict(advice) for advice in found],
    }


def _host(host: Host) -> dict[str, Any]:
    largest = together(host.zones).largest_order
    return asdict(host) | {
        "zones": [_zone(zone) for zone in host.zones],
        "all_zones": _zone(together(host.zones)),
        "largest_block": 0 if largest is None else host.page_size << largest,
    }


def _zone(zone: Zone) -> dict[str, Any]:
    orders = range(len(zone.free))
    return asdict(zone) | {
        "unusable_index": [zone.unusable_index(order) for order in orders],
        "fragmentation_index": [zone.fragmentation_index(order) for order in orders],
    }


def _process(one: Process) -> dict[str, Any]:
    entries = [
        asdict(entry)
        | {
            "descriptors_4k": descriptors(entry.mapped, SMALL_GRANULE),
            "descriptors_2m": descriptors(entry.mapped, LARGE_GRANULE),
        }
        for entry in one.entries
    ]
    return asdict(one) | {"entries": entries, "mapped": one.mapped}
