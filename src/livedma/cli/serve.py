"""livedma serve: exports a directory over NFSv4.1 and 4.2."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import signal
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livedma.cli import units

if TYPE_CHECKING:
    from livedma.control.running import Options as Steering
    from livedma.nfs.config import Config
    from livedma.nfs.service import Wishes
    from livedma.rpc.service import Network

_EXAMPLES = """examples:
  livedma serve /srv/data                            root's files are nobody's: --squash none
  livedma serve /srv/data --read-only --allow 10.0.0.0/8 --allow fd00::/8
  livedma serve /srv/data --listen 10.0.0.1 --tcp 12049 --window 256MiB --mapped 1/8

and a client:
  mount -o vers=4.1,proto=rdma,port=20049 HOST:/ /mnt
  mount -o vers=4.2 HOST:/ /mnt                      over TCP"""

NFS_PORT, RDMA_PORT = 2049, 20049


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "serve",
        help="export a directory over NFSv4.1 and 4.2",
        description="Exports DIR, which is the root of what clients mount, until Ctrl-C.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="what is exported")
    add(
        "--listen",
        metavar="ADDR",
        action="append",
        default=[],
        help="at this address, several times if need be (all of this host)",
    )
    add("--tcp", metavar="PORT", type=_port, default=NFS_PORT, help="TCP port, or off (2049)")
    add("--rdma", metavar="PORT", type=_port, default=RDMA_PORT, help="RDMA port, or off (20049)")
    add(
        "--window",
        metavar="SIZE",
        type=units.size,
        default=64 << 20,
        help="DMA addresses of an RDMA connection: what it may grow to (64MiB)",
    )
    add(
        "--mapped",
        metavar="PART",
        type=_part,
        default=Fraction(1, 4),
        help="how much of the window has memory to begin with (1/4)",
    )
    add("--buffer", metavar="SIZE", type=units.size, default=64 << 10, help="for data (64KiB)")
    add(
        "--credits",
        metavar="N",
        type=units.positive,
        default=64,
        help="calls of an RDMA connection under way (64)",
    )
    add("--read-only", action="store_true", help="refuse whatever changes something")
    add("--sync", action="store_true", help="flush changes of names and attributes, too, at once")
    add(
        "--delegations",
        action="store_true",
        help="let clients over TCP rely on what they have read, and call them before it changes",
    )
    add(
        "--allow",
        metavar="CIDR",
        type=_network,
        action="append",
        default=[],
        help="who may connect, several times if need be (everybody)",
    )
    add(
        "--squash",
        choices=("root", "all", "none"),
        default="root",
        help="who acts as nobody: root, everybody, or no one (root)",
    )
    add("--anonymous", metavar="UID:GID", type=_ids, default=(65534, 65534), help="nobody's ids")
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
        help="the control socket's (one of this process in /run/livedma)",
    )
    add("--lease", metavar="SECONDS", type=units.positive, default=90, help="of clients (90)")
    add("--grace", metavar="SECONDS", type=units.positive, help="to reclaim (as long as a lease)")
    add("--slots", metavar="N", type=_slots, default=64, help="of a new session (64)")
    add("--threads", metavar="N", type=units.positive, default=8, help="that serve calls (8)")
    add(
        "--store-delay",
        metavar="TIME",
        type=units.duration,
        default=0.0,
        help="make each access to data take so long, say 5ms: a slow disk, for the lab",
    )
    add(
        "--store-width",
        metavar="N",
        type=units.positive,
        help="and let no more than N of them be under way: a disk that can be saturated",
    )
    _add_controller(parser)
    parser.set_defaults(run=run, wrong_use=parser.error)


def _add_controller(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
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


def _config(args: argparse.Namespace) -> Config:
    from livedma.nfs.config import Config

    grace_s = args.grace or args.lease
    if grace_s < args.lease:
        args.wrong_use("--grace is no shorter than --lease")
    return Config(
        lease_s=args.lease,
        grace_s=grace_s,
        read_only=args.read_only,
        sync_metadata=args.sync,
        delegations=args.delegations,
        squash=args.squash,
        anonymous_uid=args.anonymous[0],
        anonymous_gid=args.anonymous[1],
        slots=args.slots,
        store_delay_s=args.store_delay,
        store_width=args.store_width or 0,
    )


def _wishes(args: argparse.Namespace) -> Wishes:
    from livedma.nfs.service import Wishes
    from livedma.rpc.rdma_server import Options

    return Wishes(
        addresses=args.listen,
        tcp_port=args.tcp,
        rdma_port=args.rdma,
        allow=args.allow,
        threads=args.threads,
        state=args.state,
        control=args.control or _default_control(),
        config=_config(args),
        rdma=Options(
            window_bytes=args.window,
            mapped_bytes=int(args.window * args.mapped),
            buffer_bytes=args.buffer,
            credits=args.credits,
            workers=args.threads,
        ),
    )


def _steering(args: argparse.Namespace) -> Steering:
    from livedma.control.limits import Objectives
    from livedma.control.running import Options

    p99_s = args.objective_p99
    return Options(
        policy=args.policy,
        dry_run=args.dry_run,
        budget_bytes=args.budget,
        monitor=args.monitor,
        objectives=Objectives(None if p99_s is None else round(p99_s * 1e9)),
    )


def _log_decisions() -> None:
    """One line each, on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("livedma.decisions")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def run(args: argparse.Namespace) -> int:
    from livedma.control.running import controlled
    from livedma.nfs.held import allow_all_descriptors
    from livedma.nfs.service import NfsService

    allow_all_descriptors()
    wishes, steering = _wishes(args), _steering(args)
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    _log_decisions()
    with NfsService(args.directory, wishes) as service:
        _say(f"livedma: serving {args.directory}")
        for tcp in service.tcp:
            _say(f"  TCP port {tcp.port}, {' '.join(args.listen) or 'all addresses'}")
        for rdma in service.rdma:
            _say(f"  RDMA port {rdma.port}, {rdma.device.address}")
        with controlled(service, steering) as running:
            _say(f"  control socket {wishes.control}")
            running.start()
            try:
                stopped.wait()
            except KeyboardInterrupt:
                _say("")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def control_directory() -> Path:
    """Where servers of this user have their control sockets, unless they are told otherwise."""
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or ("/run" if os.geteuid() == 0 else "/tmp"))
    return base / "livedma"


def _default_control() -> Path:
    return control_directory() / f"serve-{os.getpid()}"
