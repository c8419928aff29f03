"""livedma serve: exports a directory over NFSv4.1 and 4.2."""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from livedma.cli import units
from livedma.errors import LivedmaError

if TYPE_CHECKING:
    from livedma.nfs.config import Config
    from livedma.rpc.tcp_server import Network

_EXAMPLES = """examples:
  livedma serve /srv/data                            root's files are nobody's: --squash none
  livedma serve /srv/data --read-only --allow 10.0.0.0/8 --allow fd00::/8
  livedma serve /srv/data --listen 10.0.0.1 --tcp 12049

and a client:
  mount -o vers=4.1 HOST:/ /mnt"""

NFS_PORT = 2049


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
    add("--listen", metavar="ADDR", default="", help="at this address (all of this host)")
    add("--tcp", metavar="PORT", type=units.port, default=NFS_PORT, help="TCP port (2049)")
    add("--read-only", action="store_true", help="refuse whatever changes something")
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
    add("--lease", metavar="SECONDS", type=units.positive, default=90, help="of clients (90)")
    add("--grace", metavar="SECONDS", type=units.positive, help="to reclaim (as long as a lease)")
    add("--slots", metavar="N", type=_slots, default=64, help="of a new session (64)")
    add("--threads", metavar="N", type=units.positive, default=8, help="that serve calls (8)")
    parser.set_defaults(run=run, wrong_use=parser.error)


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
        squash=args.squash,
        anonymous_uid=args.anonymous[0],
        anonymous_gid=args.anonymous[1],
        slots=args.slots,
    )


def run(args: argparse.Namespace) -> int:
    from livedma.nfs.persist import Persist, default_directory
    from livedma.nfs.program import NfsProgram
    from livedma.nfs.server import Server
    from livedma.nfs.store import Store
    from livedma.rpc.tcp_server import TcpServer

    config = _config(args)
    directory = args.directory
    if not directory.is_dir():
        raise LivedmaError(f"{directory} is no directory")
    state = args.state or default_directory(directory)
    if _is_within(state, directory):
        raise LivedmaError(f"{state} would be exported, and it is secret; take another --state")
    with ExitStack() as stack:
        persist = stack.enter_context(Persist(state))
        store = Store(directory, secret=persist.secret("handles"), config=config)
        stack.callback(store.close)
        server = Server(store, persist, config)
        program = NfsProgram(server)
        server.start()
        stack.callback(server.stop)
        # Transports: each feeds the same program.
        tcp = stack.enter_context(
            TcpServer(program, args.listen, args.tcp, allow=args.allow, threads=args.threads)
        )
        where = args.listen or "all addresses"
        print(f"livedma: {directory} at {where}, TCP port {tcp.port}", file=sys.stderr, flush=True)
        _wait_for_signal()
    return 0


def _is_within(path: Path, directory: Path) -> bool:
    return path.resolve().is_relative_to(directory.resolve())


def _wait_for_signal() -> None:
    """Until Ctrl-C or SIGTERM, which ends in order, too."""
    stopped = threading.Event()
    previous = signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        stopped.wait()
    except KeyboardInterrupt:
        os.write(2, b"\n")
    finally:
        signal.signal(signal.SIGTERM, previous)
