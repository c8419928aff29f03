# SPDX-License-Identifier: BSD-2-Clause
"""The `livedma` command starts here. Each sub-command is one file beside this one."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from livedma import extras
from livedma.cli import summaries
from livedma.cli.arguments import Parser
from livedma.errors import LivedmaError, PrivilegeError
from livedma.privilege import as_root

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
    "watch",
    "why",
    "extend",
    "shrink",
    "migrate",
    "policy",
    "experiment",
    "lab",
    "completion",
    "man",
)


class _Version(argparse.Action):
    """Reads the version only when the option --version is given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.exit(_print_version())


def _print_version() -> int:
    from livedma.version import commit, version

    built = commit()
    print(f"livedma {version()}" + ("" if built is None else f" (commit {built})"))
    return 0


def parser(command: str | None = None, *, is_outline: bool = False) -> argparse.ArgumentParser:
    """Returns the parser of all commands, or of `command` alone: importing the others takes longer
    than running it.

    is_outline: the parser has the names and summaries of all commands, and imports none of them.
    """
    ret = Parser(
        prog="livedma",
        description="RDMA storage whose DMA memory grows and shrinks while it is in use.",
        epilog="'livedma COMMAND --help' shows each command's options and an example.",
    )
    ret.add_argument(
        "-V", "--version", action=_Version, nargs=0, help="print version and commit, and exit"
    )
    commands = ret.add_subparsers(title="commands", metavar="COMMAND")
    if is_outline:
        summaries.register_all(commands)
        return ret
    for name in COMMANDS if command is None else (command,):
        importlib.import_module(f"{__name__}.{name}").register(commands)
    return ret


def _command_of(argv: Sequence[str]) -> str | None:
    """Returns the command that the words name. None: they ask for help, or are wrong."""
    return argv[0] if argv and argv[0] in COMMANDS else None


def _remedy(argv: Sequence[str] | None) -> str:
    """Returns what helps a user that lacks a privilege: the same command with sudo, with its whole
    path since sudo has another PATH. For root sudo is no help: its container lacks the privilege.
    """
    if os.geteuid() == 0:
        return "root lacks it here, as in a container; `livedma doctor` says what to add"
    program = sys.argv[0]
    if os.path.basename(program) == "livedma":
        start = [os.path.abspath(program)]
    else:
        start = [sys.executable, "-m", "livedma"]
    return as_root(shlex.join([*start, *(sys.argv[1:] if argv is None else argv)]))


def _failed(sentence: str, command: str = "") -> int:
    """Prints the sentence as an error, and returns exit status 1.

    command: what follows the sentence. It is not wrapped, because people copy it.
    """
    from livedma.cli.paint import Paint

    print(Paint.on_errors().complaint("livedma", sentence) + command, file=sys.stderr)
    return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Exit status: 0, 1 (it failed), 2 (wrong use)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if words[:1] in (["-V"], ["--version"]):  # the version needs none of the commands
        return _print_version()
    command = _command_of(words)
    top = parser(command, is_outline=command is None)
    args = top.parse_args(words)
    if not hasattr(args, "run"):
        top.print_help()
        return 2
    args.words = words[1:]
    try:
        status: int = args.run(args)
        sys.stdout.flush()
    except PrivilegeError as error:
        return _failed(str(error), f": {_remedy(argv)}")
    except LivedmaError as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        sentence = extras.sentence(error, words[0])
        if sentence is None:
            raise
        return _failed(sentence)
    except BrokenPipeError:
        # The reader of the output (head, less) has closed it: that is no failure.
        from livedma.cli.output import drop_output

        drop_output()
        return 0
    except KeyboardInterrupt:
        return 130
    return status
