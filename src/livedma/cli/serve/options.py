# SPDX-License-Identifier: BSD-2-Clause
"""Defines the options of `livedma serve`, which its command line and a file may have."""

from __future__ import annotations

import argparse
import ipaddress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from livedma.cli import units
from livedma.cli.serve import metrics, web
from livedma.cli.serve.bounds import Duration, Number, Size

if TYPE_CHECKING:
    from livedma.rpc.service import Network

__all__ = ["add_options"]

_KIB, _MIB, _TIB = 1 << 10, 1 << 20, 1 << 40
# The windows of all connections together fit into a process's address space.
_WINDOW = Size(64 * _KIB, _TIB)
_BUFFER = Size(4 * _KIB, 64 * _MIB)
# Both ends say theirs in units of 1 KiB (RFC 8797); Linux's take 64 KiB at most.
_INLINE = Size(4 * _KIB, 64 * _KIB, _KIB)
_BUDGET = Size(64 * _KIB, 1024 * _TIB)
_NODE = Number(0, 1023)
_CREDITS = Number(1, 1024)
_SLOTS = Number(1, 1024)
_THREADS = Number(1, 64)
_LEASE = Number(1, 86400, "seconds")
_OBJECTIVE = Duration("1us", "3600s")
_DELAY = Duration("0s", "3600s")
_AHEAD = Duration("0s", "10s")
_WIDTH = Number(1, 65535)
_ID_MOST = (1 << 32) - 2  # to the system 2^32 - 1 means: no id


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds all options. Defaults are written as on the command line: their types read them."""
    parser.add_argument(
        "directory", metavar="DIR", nargs="?", type=_directory, help="what is exported"
    )
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
        help="a network whose clients may connect; may be given several times (every network)",
    )
    add(
        "--state",
        metavar="DIR",
        type=Path,
        help="where the server keeps what a restart has to know, outside of the export (in "
        "/var/lib/livedma for root, else in ~/.local/state/livedma)",
    )
    add(
        "--control",
        metavar="PATH",
        type=Path,
        help="path of the control socket, whose directory exists (serve-PID in "
        "$XDG_RUNTIME_DIR/livedma, else in /run/livedma for root or /tmp/livedma-UID)",
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
        help="the clients' users that act as the anonymous user: root, all or none (root)",
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
        type=_WINDOW,
        default="64MiB",
        help=f"DMA addresses: what its memory may grow to, {_WINDOW} (64MiB)",
    )
    add(
        "--mapped",
        metavar="PART",
        type=_part,
        default="1/4",
        help="how much of the window has memory to begin with, more than 0 and up to 1; it has to "
        "hold twice --inline for each credit, and two buffers (1/4)",
    )
    add(
        "--buffer",
        metavar="SIZE",
        type=_BUFFER,
        default="64KiB",
        help=f"size of each buffer for data, {_BUFFER} (64KiB)",
    )
    add(
        "--inline",
        metavar="SIZE",
        type=_INLINE,
        default="4KiB",
        help="the longest message that goes in one SEND, without chunks, where the client takes as "
        f"much; each credit takes twice this, {_INLINE} (4KiB)",
    )
    add(
        "--credits",
        metavar="N",
        type=_CREDITS,
        default="64",
        help=f"calls under way to begin with, {_CREDITS} (64)",
    )
    add(
        "--pages",
        choices=("auto", "4KiB", "2MiB"),
        default="auto",
        help="pages of its memory: 4KiB; 2MiB, those that are set aside or else transparent ones; "
        "auto: transparent ones where it begins with 64MiB or more, else 4KiB (auto)",
    )
    add(
        "--numa",
        metavar="NODE",
        type=_node,
        default="auto",
        help=f"the NUMA node of its memory, {_NODE}, or auto: near the interface (auto)",
    )
    add(
        "--pin-limit",
        metavar="SIZE",
        type=_BUDGET,
        help="memory that the connections of a client's address may have pinned together, enough "
        "for what one begins with at least (what the system allows)",
    )


def _add_clients(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("clients and calls").add_argument
    add(
        "--lease",
        metavar="SECONDS",
        type=_LEASE,
        default="90",
        help=f"how long a silent client keeps what it has, {_LEASE} (90)",
    )
    add(
        "--grace",
        metavar="SECONDS",
        type=_LEASE,
        help=f"how long clients may reclaim after a restart, {_LEASE} and no shorter than a "
        "lease (as long as a lease)",
    )
    add(
        "--slots",
        metavar="N",
        type=_SLOTS,
        default="64",
        help=f"slots of a new session, {_SLOTS} (64)",
    )
    add(
        "--threads",
        metavar="N",
        type=_THREADS,
        default="8",
        help=f"threads that serve calls, {_THREADS} (8)",
    )


def _add_controller(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what it does by itself").add_argument
    add(
        "--policy",
        choices=("static", "extend", "spread", "migrate"),
        default="extend",
        help="what is done when a connection is short of DMA memory (extend)",
    )
    add(
        "--ahead",
        metavar="TIME",
        type=_AHEAD,
        default="0.8s",
        help="extend memory so long before a forecast says that it runs out; 0s: only once calls "
        f"wait, {_AHEAD} (0.8s)",
    )
    add("--dry-run", action="store_true", help="say what the policy would do, and leave it")
    add(
        "--budget",
        metavar="SIZE",
        type=_BUDGET,
        help="DMA memory of all connections together, enough for what one begins with at least "
        "(what the system allows)",
    )
    add(
        "--objective-p99",
        metavar="TIME",
        type=_OBJECTIVE,
        help=f"a connection whose p99 is longer is degraded, say 10ms, {_OBJECTIVE} (only waiting "
        "counts)",
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
        type=_DELAY,
        default="0s",
        help=f"make each access to data take so long, say 5ms, {_DELAY} (0s)",
    )
    add(
        "--store-width",
        metavar="N",
        type=_WIDTH,
        help=f"and let no more than N of them be under way, {_WIDTH}: a disk that can be saturated "
        "(any number)",
    )


def _directory(text: str) -> Path:
    if not text:  # from a variable that is not set; Path("") is the current directory
        raise argparse.ArgumentTypeError("DIR is empty: write . for the current directory")
    return Path(text)


def _port(text: str) -> int | None:
    return None if text == "off" else units.port(text)


def _node(text: str) -> int | Literal["auto"]:
    return "auto" if text == "auto" else _NODE(text)


def _part(text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no part: write 1/4 or 0.25, more than 0 and up to 1"
        )
    return value


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no network: write 10.0.0.0/8") from None


def _ids(text: str) -> tuple[int, int]:
    uid, _, gid = text.partition(":")
    if not uid.isdecimal() or not gid.isdecimal() or max(int(uid), int(gid)) > _ID_MOST:
        raise argparse.ArgumentTypeError(
            f"{text!r} are no ids: write 65534:65534, each 0 to {_ID_MOST}"
        )
    return int(uid), int(gid)
