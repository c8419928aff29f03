# SPDX-License-Identifier: BSD-2-Clause
"""livedma completion: prints the script with which a shell completes livedma's command lines."""

from __future__ import annotations

import argparse
from typing import Any

_SHELLS = ("bash", "zsh", "fish", "tcsh")
_EXAMPLES = """examples:
  source <(livedma completion bash)                       in this shell
  livedma completion bash > /etc/bash_completion.d/livedma
  livedma completion zsh > "${fpath[1]}/_livedma"
  livedma completion fish > ~/.config/fish/completions/livedma.fish
"""
# Words that stand for an argument which is a file or a directory.
_FILES, _DIRECTORIES = ("FILE", "PATH"), ("DIR",)


def register(commands: Any) -> None:
    parser = commands.add_parser(
        "completion",
        help="complete command lines in bash, zsh, fish or tcsh",
        description="Prints what a shell has to read to complete commands, options, choices, "
        "files and directories.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("shell", choices=_SHELLS, help="which shell")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from livedma.cli import parser

    top = parser()
    if args.shell == "fish":
        from livedma.cli.commands import described
        from livedma.cli.fish import script

        print(script(described(top)), end="")
        return 0
    import shtab

    _tell_files(top)
    print(shtab.complete(top, shell=args.shell))
    return 0


def _tell_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                _tell_files(one)
        elif action.metavar in _FILES:
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - argparse does not know it
        elif action.metavar in _DIRECTORIES:
            setattr(action, "complete", shtab.DIRECTORY)  # noqa: B010
