"""livedma decode: what is in a capture file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from livedma._native.flow import FlowTable
from livedma.capture.files import read
from livedma.capture.sinks import FORMATS, open_sink
from livedma.cli.output import Tally, colors_wanted, open_output
from livedma.wire.summary import render, summarize

_EXAMPLES = """examples:
  livedma decode trace.pcap
  livedma decode trace.pcap --summary
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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="the capture; - for standard input")
    parser.add_argument("--format", choices=FORMATS, help="how packets are printed (text)")
    parser.add_argument("--write", metavar="FILE", help="write to a file instead of the terminal")
    parser.add_argument(
        "--summary", action="store_true", help="tell what happened on each connection instead"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format json")
    parser.set_defaults(run=run, usage_error=parser.error)


def _summarize(args: argparse.Namespace) -> int:
    flows = FlowTable()
    not_roce = 0
    with read(args.file) as file, open_output("text", args.write) as out:
        try:
            for batch in file:
                not_roce += batch.other
                flows.add(batch)
        finally:
            if file.format:
                summary = summarize(flows, not_roce)
                text = json.dumps(summary) + "\n" if args.json else render(summary)
                out.write(text.encode())
    return 0


def run(args: argparse.Namespace) -> int:
    if args.summary:
        if args.format not in (None, "json"):
            args.usage_error("--summary prints text, or JSON with --json: it has no other --format")
        args.json = args.json or args.format == "json"
        return _summarize(args)
    kind = args.format or ("json" if args.json else "text")
    tally = Tally()
    with read(args.file) as file, open_output(kind, args.write) as out:
        sink = open_sink(kind, out, color=colors_wanted(args.write))
        try:
            for batch in file:
                tally.add(batch)
                sink.write(batch)
        finally:
            sink.close()
            for warning in file.warnings:
                print(f"livedma: {file.name}: {warning}", file=sys.stderr)
            if file.format:
                print(tally, file=sys.stderr)
    return 0
