"""The `livedma` command: one file per sub-command."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence

from livedma.cli.output import drop_output
from livedma.errors import LivedmaError, PrivilegeError

#: Each is a module beside this one, in the order of the help.
COMMANDS = (
    "demo",
    "doctor",
    "mem",
    "capture",
    "decode",
    "guard",
    "perf",
    "rping",
    "serve",
    "reload",
    "load",
    "top",
    "why",
    "experiment",
    "lab",
    "completion",
    "man",
)


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """That of all commands, or of one: what only others need takes as long to import as it runs."""
    ret = argparse.ArgumentParser(
        prog="livedma",
        description="RDMA storage whose DMA memory grows and shrinks while it is in use.",
        epilog="'livedma COMMAND --help' shows each command's options and an example.",
    )
    commands = ret.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in COMMANDS if command is None else (command,):
        importlib.import_module(f"{__name__}.{name}").register(commands)
    return ret


def _command_of(argv: Sequence[str]) -> str | None:
    """The command that is certainly meant; None where all of them have to be asked."""
    return argv[0] if argv and argv[0] in COMMANDS else None


def _as_root(argv: Sequence[str] | None) -> str:
    """The command line that runs this again with sudo, which does not know our PATH."""
    program = sys.argv[0]
    if os.path.basename(program) == "livedma":
        start = [os.path.abspath(program)]
    else:
        start = [sys.executable, "-m", __name__]
    return shlex.join(["sudo", *start, *(sys.argv[1:] if argv is None else argv)])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Exit status: 0, 1 (it failed), 2 (wrong use)."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser(_command_of(words)).parse_args(words)
    args.words = words[1:]
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except PrivilegeError as error:
        print(f"livedma: {error}: {_as_root(argv)}", file=sys.stderr)
        return 1
    except LivedmaError as error:
        print(f"livedma: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output (head, less) has had enough: that is no failure of ours.
        drop_output()
        return 0
    except KeyboardInterrupt:
        return 130
    return status
