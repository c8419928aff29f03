"""livedma doctor: what this machine can do."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from livedma.doctor import Finding

_EXAMPLES = """examples:
  livedma doctor
  livedma doctor --json | jq '.findings[] | select(.state != "fine") | .fix'

Exit status 1 if no device can be opened at all."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what this machine can do, and what would help",
        description="Says for each thing that the device needs or can use whether it is there, "
        "what it costs if not, and the command that changes it. Opens a device at each address "
        "for a moment; changes nothing.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # It loads what knows all about addresses, for which no other command has to wait.
    from livedma.doctor import can_run, examine

    findings = examine()
    is_usable = can_run(findings)
    if args.json:
        print(json.dumps({"can_run": is_usable, "findings": [asdict(f) for f in findings]}))
    else:
        for finding in findings:
            print(_lines(finding))
        print(_verdict(findings, is_usable))
    return 0 if is_usable else 1


def _lines(finding: Finding) -> str:
    indent = "\n" + " " * 22
    cost = f"{indent}cost: {finding.cost}" if finding.cost else ""
    fix = f"{indent}fix:  {finding.fix}" if finding.fix else ""
    return f"{finding.state:5}  {finding.name:14} {finding.text}{cost}{fix}"


def _verdict(findings: list[Finding], is_usable: bool) -> str:
    if not is_usable:
        return "no device can be opened here"
    free = sum(bool(finding.facts.get("is_free")) for finding in findings)
    return f"a device can be opened at {free} of this host's addresses"
