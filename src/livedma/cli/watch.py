# SPDX-License-Identifier: BSD-2-Clause
"""livedma watch: shows the sessions of any NFS/RDMA server or client on this host."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from livedma.cli import units

if TYPE_CHECKING:
    from livedma.monitor import Snapshot
    from livedma.monitor.source import Source

_EXAMPLES = """examples:
  livedma watch                            all interfaces that may carry RoCE
  livedma watch eth0 --json | jq -c '.sessions[] | [.id, .operations]'

It needs root: it looks at packets with BPF."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "watch",
        help="sessions of any NFS/RDMA server or client on this host",
        description="Shows the sessions of whatever NFS/RDMA server or client is on this host, "
        "livedma's or the kernel's, with the latency and bandwidth of each.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("iface", metavar="IFACE", nargs="*", help="look at these (all that may carry RoCE)")
    add("--interval", metavar="TIME", type=units.duration, default=1.0, help="of a snapshot (1s)")
    add("--count", metavar="N", type=units.positive, help="end after N snapshots")
    add("--json", action="store_true", help="print an object for each snapshot, one a line")
    parser.set_defaults(run=run, wrong_use=parser.error)


def run(args: argparse.Namespace) -> int:
    if not 0.1 <= args.interval <= 60:
        args.wrong_use("--interval is 0.1s to 60s")
    with closing(source_of(args)) as source:
        source.attach()
        for snapshot in _snapshots(source, args.interval, args.count):
            print(json.dumps(_object(source, snapshot)), flush=True)
    return 0


def source_of(args: argparse.Namespace) -> Source:
    """Returns the source that the arguments choose."""
    from livedma.ui.watch.wire import WireSource

    return WireSource(args.iface)


def _snapshots(source: Source, interval_s: float, count: int | None) -> Iterator[Snapshot]:
    print(f"livedma: watching {source.where}; Ctrl-C ends it", file=sys.stderr)
    left = count
    while left is None or left:
        time.sleep(interval_s)
        if not source.is_attached:
            source.attach()
        yield source.snapshot()
        left = None if left is None else left - 1


def _object(source: Source, snapshot: Snapshot) -> dict[str, Any]:
    return {**asdict(snapshot), "where": source.where, "unseen": list(source.unseen())}
