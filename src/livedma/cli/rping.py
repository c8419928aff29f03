# SPDX-License-Identifier: BSD-2-Clause
"""livedma rping: pings over RDMA, as librdmacm's rping does."""

from __future__ import annotations

import argparse
import ipaddress
import json
import sys
import threading
import time
from typing import Any

from livedma.cli import units
from livedma.cli.progress import Progress
from livedma.errors import LivedmaError
from livedma.tools.rping_plan import LARGEST, SMALLEST, Options

_SPIN_S = 200e-6

_EXAMPLES = """examples:
  livedma rping -s -a 10.0.0.1                       the server; ends with its client
  livedma rping -c -a 10.0.0.1 -C 10 -v -V           the client
  livedma rping -s -a fd00::1 -P                     a server for many clients, until Ctrl-C

Either side may be librdmacm's rping, on any RoCEv2 device."""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "rping",
        help="ping over RDMA, with librdmacm's rping or alone",
        description="The protocol and the options of librdmacm's rping: the server READs the "
        "client's data and WRITEs it back.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("-s", dest="is_server", action="store_true", help="be the server")
    side.add_argument("-c", dest="is_server", action="store_false", help="be the client")
    add("-a", dest="address", metavar="ADDR", help="the server's address (-s: the first there is)")
    add("-p", dest="port", type=units.port, default=7174, help="the server's port (7174)")
    add("-I", dest="source", metavar="ADDR", help="client: from this address of this host")
    add("-C", dest="count", type=units.positive, default=0, help="pings (client: without end)")
    add(
        "-S",
        dest="size",
        type=_size,
        default=64,
        metavar="SIZE",
        help=f"bytes of data, {SMALLEST} to {LARGEST} (64); a server takes any",
    )
    add(
        "--mtu",
        type=int,
        choices=units.MTUS,
        help="client: of RDMA (the largest of its interface; the server's may be smaller)",
    )
    add("-v", dest="is_verbose", action="store_true", help="print the data")
    add("-V", dest="validates", action="store_true", help="client: check the data")
    add("-P", dest="is_persistent", action="store_true", help="server: many clients, also at once")
    add("-d", dest="is_debugging", action="store_true", help="print each step")
    add("-q", dest="own_qp", action="store_true", help="accepted for rping's sake; changes nothing")
    add("--json", action="store_true", help="client: print a summary as JSON instead")
    parser.set_defaults(run=run, wrong_use=parser.error)


def _size(text: str) -> int:
    value = units.size(text)
    if not SMALLEST <= value <= LARGEST:
        raise argparse.ArgumentTypeError(f"{value} bytes: it takes {SMALLEST} to {LARGEST}")
    return value


def run(args: argparse.Namespace) -> int:
    if args.is_server:
        if args.source or args.json or args.mtu:
            args.wrong_use("-I, --mtu and --json are for the client")
        return _serve(args)
    if args.address is None or args.is_persistent:
        args.wrong_use("a client needs -a ADDR, and -P is for servers")
    return _ping(args)


def _options(args: argparse.Namespace, progress: Progress | None = None) -> Options:
    def show(line: str) -> None:
        if args.is_verbose:
            print(line, flush=True)

    def debug(line: str) -> None:
        if progress is not None and line == "rdma_connect successful":
            progress.clear()
        if line.endswith("DISCONNECT EVENT..."):  # which rping always prints
            print(line, file=sys.stderr, flush=True)
        elif args.is_debugging:
            print(line, flush=True)

    return Options(args.size, args.count, args.mtu, args.validates, show, debug)


def _ping(args: argparse.Namespace) -> int:
    from livedma.tools.endpoint import device_towards, resolve
    from livedma.tools.rping import ping

    peer = resolve(args.address)
    source = None if args.source is None else resolve(args.source)
    if args.json:
        args.is_verbose = False
    progress = Progress()
    with (
        device_towards(peer, _SPIN_S, source) as device,
        progress.waiting(f"connecting to {peer} port {args.port}"),
    ):
        start_s = time.monotonic()
        count = ping(device, peer, args.port, _options(args, progress))
        elapsed_s = time.monotonic() - start_s
        if args.json:
            summary = {
                "server": peer,
                "client": device.address,
                "port": args.port,
                "size": args.size,
                "pings": count,
                "validated": args.validates,
                "seconds": round(elapsed_s, 6),
            }
            print(json.dumps(summary))
    return 0


def _serve(args: argparse.Namespace) -> int:
    from livedma.rdma import cm
    from livedma.tools.endpoint import device_at
    from livedma.tools.rping import serve

    options = _options(args)
    address = _server_address(args.address)
    with device_at(address, _SPIN_S) as device, cm.listen(device, args.port) as listener:
        print(
            f"livedma: waiting at {address}: rping -c -a {address} -p {args.port}",
            file=sys.stderr,
            flush=True,
        )
        if not args.is_persistent:
            serve(device, listener.get(), options)
            return 0

        def serve_in_thread(request: cm.Request) -> None:
            try:
                serve(device, request, options)
            except LivedmaError as error:
                print(f"livedma: {request.peer}: {error}", file=sys.stderr, flush=True)
            except ValueError:  # the device was closed
                return

        for request in listener:
            threading.Thread(target=serve_in_thread, args=(request,), daemon=True).start()
    return 0


def _server_address(text: str | None) -> str:
    from livedma.tools.endpoint import own_address, resolve

    if text is None:
        return own_address()
    address = ipaddress.ip_address(resolve(text))
    return own_address(address.version) if address.is_unspecified else str(address)
