# SPDX-License-Identifier: BSD-2-Clause
"""livedma guard: lists and changes the rules by which an interface lets RoCE packets in."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import TYPE_CHECKING, Any

from livedma import wire
from livedma.wire.words import amount

if TYPE_CHECKING:  # these modules need libbpf; other commands work without it
    from livedma.capture.guard import Counters, Guard, Status
    from livedma.capture.guard_rule import Network

_OPERATIONS = (*wire.OPERATIONS, "UNKNOWN")

_EXAMPLES = """examples:
  livedma guard eth0                         rules and what they did
  livedma guard eth0 add drop --from 10.0.0.0/8 --op WRITE,READ
  livedma guard eth0 add limit 10k/s --qp 1
  livedma guard eth0 qps set 17,18,0x1f      the queue pairs that exist;
  livedma guard eth0 add drop --qp unknown   a flood for others stops here
  livedma guard eth0 remove 2
  livedma guard eth0 off"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "guard",
        help="drop, limit or allow RoCE before the stack sees it",
        description="A firewall for RoCE in XDP. Rules are judged in order and the first that "
        "matches decides; what matches none passes, and so does everything that is not RoCE. The "
        "guard stays when the command ends. Without an action: lists the rules.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("interface", metavar="IFACE", help="the interface")
    parser.add_argument("--json", action="store_true", help="print the guard as JSON")
    parser.set_defaults(run=run, change=None, prepare=None, parser=parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    _register_add(actions)
    _register_remove(actions)
    _register_qps(actions)
    _action(actions, "off", _off, "take the guard away", "livedma guard eth0 off")


def _action(
    actions: Any, name: str, change: Any, text: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
    )
    # --json may stand before or behind the action.
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print the guard as JSON"
    )
    parser.set_defaults(change=change, parser=parser)
    return parser


def _register_add(actions: Any) -> None:
    parser = _action(
        actions, "add", _add, "add a rule", "livedma guard eth0 add limit 10k/s --from 10.0.0.7"
    )
    parser.set_defaults(prepare=_prepare_rule)
    parser.add_argument("action", choices=("drop", "allow", "limit"), help="what happens")
    parser.add_argument(
        "rate", metavar="RATE", nargs="?", type=_rate, help="limit: packets a second, as 10k/s"
    )
    parser.add_argument(
        "--burst", metavar="N", type=_positive, help="limit: packets at once (a second's worth)"
    )
    parser.add_argument(
        "--from", dest="source", metavar="ADDR[/LEN]", type=_source, help="from this address"
    )
    parser.add_argument(
        "--qp",
        dest="qps",
        metavar="N[,N..]|unknown",
        type=_rule_qps,
        default=(),
        help="to these queue pairs, or to those that do not exist (see qps)",
    )
    parser.add_argument(
        "--op",
        dest="operations",
        metavar="OP[,OP..]",
        type=_operations,
        default=(),
        help=f"doing this: {', '.join(_OPERATIONS)}",
    )
    parser.add_argument(
        "--malformed", action="store_true", help="only packets that end before their BTH does"
    )
    parser.add_argument(
        "--at", metavar="K", type=_positive, help="make it rule K, before those from K on"
    )


def _register_remove(actions: Any) -> None:
    parser = _action(actions, "remove", _remove, "remove a rule", "livedma guard eth0 remove 2")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("number", metavar="K", nargs="?", type=_positive, help="the rule's number")
    which.add_argument("--all", action="store_true", help="all rules: the same as off")


def _register_qps(actions: Any) -> None:
    parser = _action(
        actions,
        "qps",
        _change_qps,
        "tell which queue pairs exist, for --qp unknown (0 and 1 always do)",
        "livedma guard eth0 qps add 17,18",
    )
    parser.add_argument("verb", choices=("add", "remove", "set"), help="what to do with them")
    parser.add_argument("numbers", metavar="N[,N..]", type=_qps, help="the queue pairs")


def run(args: argparse.Namespace) -> int:
    from livedma.capture.guard import Guard

    if args.prepare:
        args.prepare(args)
    with Guard(args.interface) as guard:
        if guard.has_mounted:
            print("livedma: mounted the BPF file system at /sys/fs/bpf", file=sys.stderr)
        told = args.change(guard, args) if args.change else None
        if args.json:
            print(json.dumps(_as_json(args.interface, guard.status()), indent=2))
        elif told is not None:
            print(told)
        else:
            print(_listing(args.interface, guard.status()))
    return 0


def _prepare_rule(args: argparse.Namespace) -> None:
    """Makes args.rule. It reports wrong use before the command touches the guard."""
    from livedma.capture.guard_rule import Rule

    if args.action == "limit" and args.rate is None:
        args.parser.error("a limit needs a rate, as in 'limit 1000/s'")
    if args.action != "limit" and args.rate is not None:
        args.parser.error(f"only a limit has a rate: '{args.action}' takes none")
    try:
        args.rule = Rule(
            args.action,
            source=args.source,
            qps=args.qps,
            operations=args.operations,
            rate=args.rate or 0,
            burst=args.burst or 0,
            malformed=args.malformed,
        )
    except ValueError as error:
        args.parser.error(str(error))


def _add(guard: Guard, args: argparse.Namespace) -> str:
    rule = args.rule
    number = guard.add(rule, args.at)
    status = guard.status()
    if rule.qps == "unknown" and not status.known_qps:
        print(
            "livedma: no queue pair is known yet, so this rule takes all but QP 0 and 1: "
            f"'livedma guard {args.interface} qps set N,N' tells which exist",
            file=sys.stderr,
        )
    return f"{args.interface}: rule {number}: {rule} ({status.mode} XDP)"


def _remove(guard: Guard, args: argparse.Namespace) -> str:
    if args.all:
        return _off(guard, args)
    rule = guard.remove(args.number)
    end = "" if guard.is_on else "; it was the last one: the guard is off"
    return f"{args.interface}: removed rule {args.number}: {rule}{end}"


def _change_qps(guard: Guard, args: argparse.Namespace) -> str:
    {"add": guard.add_qps, "remove": guard.remove_qps, "set": guard.set_qps}[args.verb](
        args.numbers
    )
    return f"{args.interface}: {amount(len(guard.status().known_qps), 'queue pair')} known"


def _off(guard: Guard, args: argparse.Namespace) -> str:
    return f"{args.interface}: the guard is off" + ("" if guard.off() else " (it was)")


def _rate(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kKmM]?)(/s)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no rate: write 1000/s or 10k/s")
    return int(match[1]) * {"": 1, "k": 1000, "m": 1000000}[match[2].lower()]


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def _source(text: str) -> Network:
    from livedma.capture.guard_rule import parse_source

    try:
        return parse_source(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no address: write 10.0.0.1, 10.0.0.0/8 or fd00::/64"
        ) from None


def _qps(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part, 0) for part in text.split(","))
    except ValueError:
        numbers = (-1,)
    if not all(0 <= number < 1 << 24 for number in numbers):
        raise argparse.ArgumentTypeError(
            f"'{text}' are no queue pairs: write numbers below 0x1000000 as in 17,0x12"
        )
    return numbers


def _rule_qps(text: str) -> tuple[int, ...] | str:
    return text if text == "unknown" else _qps(text)


def _operations(text: str) -> tuple[str, ...]:
    names = tuple(text.upper().split(","))
    for name in names:
        if name not in _OPERATIONS:
            raise argparse.ArgumentTypeError(
                f"there is no operation '{name}': choose from {', '.join(_OPERATIONS)}"
            )
    return names


def _as_json(interface: str, status: Status) -> dict[str, Any]:
    return {
        "interface": interface,
        "on": status.mode is not None,
        "mode": status.mode,
        "default": "pass",
        "rules": [
            {
                "number": number,
                "action": rule.action,
                "from": str(rule.source) if rule.source else None,
                "qp": rule.qps if rule.qps == "unknown" else list(rule.qps) or None,
                "op": list(rule.operations) or None,
                "malformed": rule.malformed,
                "rate": rule.rate or None,
                "burst": rule.burst or None,
                **_counters_as_json(counters),
            }
            for number, (rule, counters) in enumerate(status.rules, 1)
        ],
        "unmatched": _counters_as_json(status.unmatched),
        "malformed": _counters_as_json(status.malformed),
        "known_qps": list(status.known_qps),
        "other_xdp": {"id": status.foreign.prog_id, "name": status.foreign.name}
        if status.foreign
        else None,
    }


def _counters_as_json(counters: Counters) -> dict[str, Any]:
    return {
        "packets": counters.packets,
        "bytes": counters.bytes,
        "dropped": counters.dropped,
        "seconds_ago": counters.seconds_ago,
    }


def _listing(interface: str, status: Status) -> str:
    if status.mode is None:
        other = f"; it runs {status.foreign}" if status.foreign else ""
        return f"{interface}: no guard{other}"
    rows = [("#", "action", "from", "qp", "op", "packets", "bytes", "dropped", "last seen")]
    for number, (rule, counters) in enumerate(status.rules, 1):
        action = f"limit {rule.rate}/s:{rule.burst}" if rule.action == "limit" else rule.action
        operations = "malformed" if rule.malformed else ",".join(rule.operations) or "any"
        rows.append(
            (str(number), action, rule.source_text, rule.qp_text, operations, *_cells(counters))
        )
    rows.append(("-", "pass", "any", "any", "no rule", *_cells(status.unmatched)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{interface}: {status.mode} XDP, {amount(len(status.rules), 'rule')}, "
        f"{amount(len(status.known_qps), 'queue pair')} known, "
        f"{amount(status.malformed.packets, 'malformed packet')}"
    ]
    for row in rows:
        cells = [
            cell.ljust(width) if column < 5 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def _cells(counters: Counters) -> tuple[str, str, str, str]:
    ago = counters.seconds_ago
    return (
        f"{counters.packets:,}",
        f"{counters.bytes:,}",
        f"{counters.dropped:,}",
        "never" if ago is None else f"{ago:,.0f} s ago",
    )
