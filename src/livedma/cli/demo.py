# SPDX-License-Identifier: BSD-2-Clause
"""livedma demo: shows how sessions pile up on a connection and its DMA memory grows under them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO

from livedma import extras
from livedma.cli import units

if TYPE_CHECKING:
    from livedma.cli.demo_screen import Screen
    from livedma.lab.outcome import Outcome
    from livedma.lab.ramp import Run
    from livedma.lab.stage import Stage

_POLICIES = ("extend", "spread", "migrate", "static")
_LEAST_S = 4.0

_EXAMPLES = """examples:
  livedma demo                          about 40 s; as root with two hosts and BPF, else on loopback
  livedma demo --policy migrate
  livedma demo --keep                   look at its page, or with livedma why; Ctrl-C ends it
  livedma demo --json | jq .outcomes"""


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="sessions pile up on one connection, and its DMA memory grows under them",
        description="Starts a server and a client on this machine. Sessions pile up on one RDMA "
        "connection past the first quarter of its DMA memory; the server sees it, finds out why, "
        "and does something about it. Then the same again under the policy static, which does "
        "nothing. Ends by itself and leaves nothing behind.",
        epilog=_EXAMPLES,
    )
    add = parser.add_argument
    add("--policy", choices=_POLICIES, default="extend", help="what is done about it (extend)")
    add("--seconds", type=_seconds, default=18.0, metavar="S", help="of each ramp (18)")
    add(
        "--keep",
        action="store_true",
        help="leave server and sessions running at the end, until Ctrl-C (static goes first)",
    )
    add("--json", action="store_true", help="one object at the end, with all that was seen")
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    value = units.duration(text)
    if not _LEAST_S <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: a ramp takes {_LEAST_S:g} to 3600 seconds")
    return value


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise SystemExit, as Ctrl-C raises an exception: the demo then takes
    its stage down itself, instead of leaving that to the stage's keeper.
    """

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(args: argparse.Namespace) -> int:
    from livedma.cli import demo_page as page
    from livedma.lab.outcome import Outcome
    from livedma.lab.ramp import Ramp, perform
    from livedma.lab.stage import Stage

    has_page = all(extras.is_installed(one) for one in ("aiohttp", "prometheus_client"))
    ramp = Ramp.fitting(args.seconds)
    others = [] if args.policy == "static" else ["static"]
    order = [*others, args.policy] if args.keep else [args.policy, *others]
    runs: dict[str, Run] = {}
    with _orderly_end(), _screen(args.json) as screen, Stage(page=has_page) as stage:
        paint = screen.paint
        screen.say(*page.heading(stage, ramp, paint), "")
        screen.say(*page.invitation(stage, is_kept=args.keep, paint=paint))
        for policy in order:
            is_kept = args.keep and policy == args.policy
            runs[policy] = perform(stage, ramp, policy, screen.look, endless=is_kept)
        screen.wipe()
        outcomes = [Outcome.of(runs[policy]) for policy in (args.policy, *others)]
        screen.say("", *page.story(outcomes, paint))
        if args.json:
            print(json.dumps(_as_json(stage, runs, outcomes)), flush=True)
        if args.keep:
            screen.say("", *page.kept(runs[args.policy]))
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return 1 if any(one.errors for one in outcomes) else 0


@contextmanager
def _screen(is_json: bool) -> Iterator[Screen]:
    """Yields a screen on standard output. With --json it is on standard error if that is a
    terminal, and else shows nothing.
    """
    from livedma.cli.demo_screen import Screen

    with ExitStack() as stack:
        file: TextIO = sys.stdout
        if is_json:
            is_seen = sys.stderr.isatty()
            file = sys.stderr if is_seen else stack.enter_context(open(os.devnull, "w"))
        screen = Screen(file)
        stack.callback(screen.wipe)
        yield screen


def _as_json(stage: Stage, runs: dict[str, Run], outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "stage": {
            "isolated": stage.is_isolated,
            "server": stage.server_address,
            "client": stage.client_address,
            "page": stage.page_url,
        },
        "outcomes": [one.as_json() for one in outcomes],
        "runs": [one.as_json() for one in runs.values()],
    }
