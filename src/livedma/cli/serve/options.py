"""What `livedma serve` can be told, by its command line or a file."""

from __future__ import annotations

import argparse
import ipaddress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from livedma.cli import units
from livedma.cli.serve import metrics, web

if TYPE_CHECKING:
    from livedma.rpc.service import Network

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Defaults are as one would write them: their types read them."""
    parser.add_argument("directory", metavar="DIR", nargs="?", type=Path, help="what is exported")
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="read options from this file (TOML); those given here count more, and SIGHUP has it "
        "read again (none)",
    )
    _add_places(parser)
    _add_export(parser)
    _add_memory(parser)
    _add_clients(parser)
    _add_controller(parser)
    web.add_options(parser)
    metrics.add_options(parser)
    _add_log(parser)
    _add_lab(parser)


def _add_places(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("where it serves").add_argument
    add(
        "--listen",
        metavar="ADDR",
        action="append",
        default=[],
        help="serve at this address, several times if need be (all of this host)",
    )
    add("--tcp", metavar="PORT", type=_port, default="2049", help="TCP port, or off (2049)")
    add("--rdma", metavar="PORT", type=_port, default="20049", help="RDMA port, or off (20049)")
    add(
        "--allow",
        metavar="CIDR",
        type=_network,
        action="append",
        default=[],
        help="who may connect, several times if need be (everybody)",
    )
    add(
        "--state",
        metavar="DIR",
        type=Path,
        help="what a restart has to know, outside of the export (a directory of this user)",
    )
    add(
        "--control",
        metavar="PATH",
        type=Path,
        help="path of the control socket (one of this process in /run/livedma)",
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what clients may do").add_argument
    add("--read-only", action="store_true", help="refuse whatever changes something")
    add("--sync", action="store_true", help="flush changes of names and attributes, too, at once")
    add(
        "--delegations",
        action="store_true",
        help="let clients over TCP rely on what they have read, and call them before it changes",
    )
    add(
        "--squash",
        choices=("root", "all", "none"),
        default="root",
        help="who acts as nobody: root, everybody, or no one (root)",
    )
    add(
        "--anonymous",
        metavar="UID:GID",
        type=_ids,
        default="65534:65534",
        help="nobody's ids (65534:65534)",
    )


def _add_memory(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what an RDMA connection gets").add_argument
    add(
        "--window",
        metavar="SIZE",
        type=units.size,
        default="64MiB",
        help="DMA addresses: what its memory may grow to (64MiB)",
    )
    add(
        "--mapped",
        metavar="PART",
        type=_part,
        default="1/4",
        help="how much of the window has memory to begin with (1/4)",
    )
    add(
        "--buffer",
        metavar="SIZE",
        type=units.size,
        default="64KiB",
        help="size of each buffer for data (64KiB)",
    )
    add(
        "--credits",
        metavar="N",
        type=units.positive,
        default="64",
        help="calls under way to begin with (64)",
    )


def _add_clients(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("clients and calls").add_argument
    add(
        "--lease",
        metavar="SECONDS",
        type=units.positive,
        default="90",
        help="how long a silent client keeps what it has, in seconds (90)",
    )
    add(
        "--grace",
        metavar="SECONDS",
        type=units.positive,
        help="how long clients may reclaim after a restart, in seconds (as long as a lease)",
    )
    add("--slots", metavar="N", type=_slots, default="64", help="slots of a new session (64)")
    add(
        "--threads",
        metavar="N",
        type=units.positive,
        default="8",
        help="threads that serve calls (8)",
    )


def _add_controller(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what it does by itself").add_argument
    add(
        "--policy",
        choices=("static", "extend", "spread", "migrate"),
        default="extend",
        help="what is done when a connection is short of DMA memory (extend)",
    )
    add("--dry-run", action="store_true", help="say what the policy would do, and leave it")
    add(
        "--budget",
        metavar="SIZE",
        type=units.size,
        help="DMA memory of all connections together (what the system allows)",
    )
    add(
        "--objective-p99",
        metavar="TIME",
        type=units.duration,
        help="a connection whose p99 is longer is degraded, say 10ms (only waiting counts)",
    )
    add(
        "--monitor",
        choices=("auto", "server"),
        default="auto",
        help="watch the wire by BPF where that is allowed, or ask the server alone (auto)",
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what it says").add_argument
    add(
        "--log-level",
        choices=("error", "warning", "info", "debug"),
        default="info",
        help="the least that is worth a line on standard error (info)",
    )
    add(
        "--log-format",
        choices=("text", "json", "journal"),
        default="text",
        help="lines for people, an object a line, or fields for systemd's journal (text)",
    )


def _add_lab(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a slow disk, for the lab").add_argument
    add(
        "--store-delay",
        metavar="TIME",
        type=units.duration,
        default="0s",
        help="make each access to data take so long, say 5ms (0s)",
    )
    add(
        "--store-width",
        metavar="N",
        type=units.positive,
        help="and let no more than N of them be under way: a disk that can be saturated (any "
        "number)",
    )


def _port(text: str) -> int | None:
    return None if text == "off" else units.port(text)


def _part(text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write 1/4 or 0.25")
    return value


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no network: write 10.0.0.0/8") from None


def _ids(text: str) -> tuple[int, int]:
    uid, _, gid = text.partition(":")
    if not uid.isdecimal() or not gid.isdecimal() or max(int(uid), int(gid)) >= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} are no ids: write 65534:65534")
    return int(uid), int(gid)


def _slots(text: str) -> int:
    value = units.positive(text)
    if value > 1024:
        raise argparse.ArgumentTypeError(f"{value} slots: a session has 1 to 1024")
    return value
