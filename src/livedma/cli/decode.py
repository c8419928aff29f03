# SPDX-License-Identifier: BSD-2-Clause
"""livedma decode: prints the packets of a capture file, or a summary of them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, BinaryIO

from livedma._native.flow import FlowTable
from livedma._native.wire import Batch
from livedma.capture.files import CaptureFile, read
from livedma.capture.sinks import FORMATS, Sink, open_sink
from livedma.cli.filtering import add_filters, filters_of
from livedma.cli.output import Tally, amount, colors_wanted, open_output
from livedma.cli.paint import Paint
from livedma.cli.summary_page import page
from livedma.errors import CaptureFileError
from livedma.wire.summary import summarize

_EXAMPLES = """examples:
  livedma decode trace.pcap
  livedma decode trace.pcap --summary
  livedma decode trace.pcap --host 10.0.0.7 --op send,write
  livedma decode trace.pcapng --format json | jq 'select(.icrc_ok | not)'
  livedma decode trace.pcap --format parquet --write trace.parquet
  tcpdump -i eth0 -w - udp port 4791 | livedma decode -"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "decode",
        help="decode a pcap or pcapng file",
        description="Decodes the RoCE packets of a pcap or pcapng file and verifies their ICRCs. "
        "Packets that are not RoCE are counted, not printed.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("file", metavar="FILE", help="the capture; - for standard input")
    parser.add_argument("--format", choices=FORMATS, help="how packets are printed (text)")
    parser.add_argument("--write", metavar="FILE", help="write to a file instead of the terminal")
    parser.add_argument(
        "--summary", action="store_true", help="tell what happened on each connection instead"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    add_filters(parser)
    parser.set_defaults(run=run, wrong_use=parser.error)


def run(args: argparse.Namespace) -> int:
    if args.summary and args.format not in (None, "json"):
        args.wrong_use("--summary prints text, or JSON with --json: it has no other --format")
    as_json = args.json or args.format == "json"
    decode = _Summary(args, as_json) if args.summary else _Packets(args)
    wanted = filters_of(args)
    selection = wanted.selection() if wanted else None
    broken = None
    with (
        read(args.file) as file,
        open_output(decode.kind, args.write, reading=args.file, whole=True) as out,
    ):
        try:
            for batch in file:
                decode.add(batch, 0 if selection is None else selection.keep(batch), out)
        except CaptureFileError as error:
            if not file.format:  # it is no capture: the file at --write stays as it was
                raise
            broken = error  # the packets before the break are still printed
        finally:
            decode.end(file, out)
    if broken is not None:
        raise broken
    return 0


class _Summary:
    """Prints what happened on each connection."""

    kind = "text"

    def __init__(self, args: argparse.Namespace, as_json: bool) -> None:
        self._as_json, self._flows = as_json, FlowTable()
        self._paint = Paint.on_output() if args.write is None else Paint.plain()
        self._not_roce = self._left_out = 0

    def add(self, batch: Batch, left_out: int, out: BinaryIO) -> None:
        self._left_out += left_out
        self._not_roce += batch.other
        self._flows.add(batch)

    def end(self, file: CaptureFile, out: BinaryIO) -> None:
        if file.format:
            summary = summarize(self._flows, self._not_roce)
            text = json.dumps(summary) + "\n" if self._as_json else page(summary, self._paint)
            out.write(text.encode())
        if self._left_out:
            print(f"{amount(self._left_out, 'packet')} filtered out", file=sys.stderr)


class _Packets:
    """Prints each packet in one of the formats."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.kind = args.format or ("json" if args.json else "text")
        self._color = colors_wanted(args.write)
        self._tally, self._left_out = Tally(), 0
        self._sink: Sink | None = None

    def add(self, batch: Batch, left_out: int, out: BinaryIO) -> None:
        self._left_out += left_out
        self._tally.add(batch)
        self._opened(out).write(batch)

    def _opened(self, out: BinaryIO) -> Sink:
        if self._sink is None:
            self._sink = open_sink(self.kind, out, color=self._color)
        return self._sink

    def end(self, file: CaptureFile, out: BinaryIO) -> None:
        self._opened(out).close()
        for warning in file.warnings:
            print(f"livedma: {file.name}: {warning}", file=sys.stderr)
        if file.format:
            others = f", {self._left_out:,} others filtered out" if self._left_out else ""
            print(f"{self._tally}{others}", file=sys.stderr)
