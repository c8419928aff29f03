# SPDX-License-Identifier: BSD-2-Clause
"""livedma lab: runs two guests with a real kernel and its RDMA stack, on their own network."""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import shlex
import shutil
import signal
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Any

from livedma.cli.lab_page import with_page_here
from livedma.errors import LabError, PrivilegeError

if TYPE_CHECKING:
    from livedma.lab.channel import Command

_LEAVE = b"\x1d"  # Ctrl-]

_EXAMPLES = """examples:
  livedma lab up                                   guests a (10.77.0.1, fd77::1) and b (.2, ::2)
  livedma lab sh a rdma link                       a command in a guest, with its exit status
  livedma lab sh b                                 a shell in a guest; Ctrl-] leaves it
  livedma lab host livedma capture tapb            a command between them, at 10.77.0.254
  livedma lab host livedma serve DIR --web         a server there, its page on this host
  livedma lab down"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "lab",
        help="two guests with a real kernel's RDMA stack, in QEMU",
        description="Two guests with Debian's kernel, rdma_rxe, NFS and NVMe over RDMA, on a "
        "network of their own. The first time, their image is built and cached. "
        "Without an action: says what is up.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="say what is up as JSON")
    parser.add_argument(
        "--name", type=_name, default="lab", help="of the lab, if you want several (lab)"
    )
    parser.set_defaults(run=run, act=_status, parser=parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    up = _action(actions, "up", _up, "start the guests and leave them running", "livedma lab up")
    up.add_argument("--boot", action="store_true", help="boot them, even if there is a snapshot")
    up.add_argument("--mtu", type=_mtu, default=1500, help="of their network (1500)")
    text = "run a command in a guest, or a shell"
    sh = _action(actions, "sh", _sh, text, "livedma lab sh a rping -s -a 10.77.0.1")
    sh.add_argument("guest", choices=("a", "b"), help="which guest")
    sh.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="one word: a bash script"
    )
    text = "run a command in the host between the guests"
    host = _action(actions, "host", _host, text, "livedma lab host livedma capture tapb")
    host.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="and its arguments"
    )
    _action(actions, "down", _down, "end the guests and their network", "livedma lab down")


def _action(actions: Any, name: str, act: Any, text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"example:\n  {example}",
    )
    parser.set_defaults(act=act, parser=parser)
    return parser


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,31}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name: a-z, 0-9 and '-', 32 at most")
    return text


def _mtu(text: str) -> int:
    if not text.isdecimal() or not 1280 <= int(text) <= 9000:
        raise argparse.ArgumentTypeError(f"{text!r} is no MTU from 1280 to 9000")
    return int(text)


def _say(sentence: str) -> None:
    print(f"livedma: {sentence}", file=sys.stderr, flush=True)


def _status(args: argparse.Namespace) -> int:
    from livedma.lab.guest import running

    guests = running(args.name)
    if args.json:
        found = [
            {"name": guest.name, "pid": guest.pid(), "ipv4": guest.ipv4, "ipv6": guest.ipv6}
            for guest in guests
        ]
        print(json.dumps({"guests": found}))
    elif not guests:
        print("no guests are up: livedma lab up")
    for guest in () if args.json else guests:
        print(
            f"guest {guest.name}   {guest.ipv4}   {guest.ipv6}   port {guest.tap}   "
            f"process {guest.pid()}   console {guest.console}"
        )
    return 0


def _up(args: argparse.Namespace) -> int:
    from livedma.lab.guest import Lab

    start_s = time.monotonic()
    Lab(args.name, keep=True, mtu=args.mtu, snapshots=not args.boot, say=_say).start()
    _say(f"both guests are up ({time.monotonic() - start_s:.1f} s)")
    args.json = False
    return _status(args)


def _down(args: argparse.Namespace) -> int:
    from livedma.lab.guest import LABS, remove

    was_up = (LABS / args.name).exists()
    remove(LABS / args.name)
    print("the guests are down" if was_up else "no guests were up")
    return 0


def _host(args: argparse.Namespace) -> int:
    from livedma.lab.guest import Lab, running

    if not running(args.name):
        raise LabError("no guests are up: livedma lab up")
    # The variable keeps the page's socket open, so that exec hands it down to the server.
    command, _page = with_page_here(args.command)
    argv = Lab(args.name).host.command(*command)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise LabError(f"{argv[0]}: {error.strerror}") from None


def _sh(args: argparse.Namespace) -> int:
    from livedma.lab.channel import Command
    from livedma.lab.guest import LABS

    if args.command or not sys.stdin.isatty():
        given = args.command or [sys.stdin.read()]
        script = given[0] if len(given) == 1 else shlex.join(given)
        with Command(LABS / args.name, args.guest, script) as command:
            return _pass_on(command)
    size = shutil.get_terminal_size()
    terminal = (size.lines, size.columns)
    term = os.environ.get("TERM", "linux")
    _say(f"a shell in guest {args.guest}; Ctrl-] leaves it")
    with Command(
        LABS / args.name, args.guest, "exec bash -i", terminal=terminal, term=term
    ) as shell:
        return _interact(shell)


def _pass_on(command: Command) -> int:
    """Prints the output as it comes; returns the command's status."""
    while command.status is None:
        for stream, data in zip((sys.stdout, sys.stderr), command.read(1), strict=True):
            stream.buffer.write(data)
            stream.flush()
    return command.status


def _interact(shell: Command) -> int:
    """Joins the shell with this terminal, until either is done."""
    stdin, before = sys.stdin.fileno(), termios.tcgetattr(sys.stdin)

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        shell.resize(size.lines, size.columns)

    signal.signal(signal.SIGWINCH, resize)
    tty.setraw(stdin)
    try:
        while shell.status is None:
            ready, _, _ = select.select([stdin, shell], [], [], 1)
            if stdin in ready:
                typed = os.read(stdin, 4096)
                if not typed or _LEAVE in typed:
                    return 0
                shell.write(typed)
            if shell in ready:
                sys.stdout.buffer.write(shell.read(0.01)[0])
                sys.stdout.buffer.flush()
        return shell.status
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        print()


def run(args: argparse.Namespace) -> int:
    if args.act is _host and not args.command:
        args.parser.error("a command is missing")
    if os.geteuid():
        raise PrivilegeError("guests and their network need root")
    status: int = args.act(args)
    return status
