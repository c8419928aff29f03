# SPDX-License-Identifier: BSD-2-Clause
"""livedma doctor: reports what this machine can do for a server and its device."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from livedma.doctor import Report

_EXAMPLES = """examples:
  livedma doctor
  livedma doctor eth0                      only that interface, or address
  livedma doctor --costs                   leave out what is fine
  livedma doctor --json | jq -r '.findings[] | select(.fix != "") | .fix'

Exit status 1 if a server can be started at none of the addresses."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what this machine can do, and what would help",
        description="Says for each thing that a server and its device need or can use whether it "
        "is there, what it costs if not, and the command that changes it. Opens a device at each "
        "address and attaches the monitor to lo for a moment; changes nothing.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "only",
        metavar="INTERFACE|ADDR",
        nargs="?",
        default="",
        help="look at this one only (all that are up)",
    )
    parser.add_argument("--costs", action="store_true", help="leave out what is fine")
    parser.add_argument("--json", action="store_true", help="print an object (docs/doctor.md)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # The doctor loads much for its look at addresses; no other command should wait for that.
    from livedma.cli.doctor_page import page
    from livedma.cli.serve import control_directory
    from livedma.doctor import examine

    report = examine(control_directory(), args.only)
    print(json.dumps(_object(report)) if args.json else page(report, costs_only=args.costs))
    return 0 if report.can_run else 1


def _object(report: Report) -> dict[str, Any]:
    from livedma.cli.doctor_page import verdict
    from livedma.doctor import VERSION

    return {
        "version": VERSION,
        "can_run": report.can_run,
        "verdict": verdict(report),
        "addresses": report.free_addresses,
        "findings": [asdict(finding) for finding in report.findings],
    }
