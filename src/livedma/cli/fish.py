# SPDX-License-Identifier: BSD-2-Clause
"""Writes the script with which fish completes livedma's command lines."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.cli.commands import Argument, Command

__all__ = ["script"]

# The command is the first word; an action of a command (guard eth0 add) may come later.
_HEAD = """function __livedma_using
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $argv[1]; or return 1
    for word in $argv[2..-1]
        contains -- $word $words[3..-1]; or return 1
    end
end
complete -c livedma -f"""

# For each word that stands for a value: how fish finds the values.
_VALUES = {
    "FILE": "-F",
    "PATH": "-F",
    "DIR": "-a '(__fish_complete_directories)'",
    "IFACE": "-a '(__fish_print_interfaces)'",
}


def script(top: Command) -> str:
    lines = [_HEAD, *_options(top, "__fish_use_subcommand")]
    for command in top.commands:
        lines.append(_choice("__fish_use_subcommand", command))
        lines += _command(command)
    return "\n".join(lines) + "\n"


def _choice(condition: str, command: Command) -> str:
    name = command.name.split()[-1]
    return f"complete -c livedma -n {_quoted(condition)} -a {name} -d {_quoted(command.summary)}"


def _command(command: Command) -> Iterator[str]:
    name = command.name.split()[1]
    using = f"__livedma_using {name}"
    yield from _options(command, using)
    actions = [one.name.split()[-1] for one in command.commands]
    for action, word in zip(command.commands, actions, strict=True):
        yield _choice(f"{using}; and not __fish_seen_subcommand_from {' '.join(actions)}", action)
        yield from _options(action, f"{using} {word}")


def _options(command: Command, condition: str) -> Iterator[str]:
    for _, arguments in command.groups:
        for one in arguments:
            if line := _argument(one, condition):
                yield line


def _argument(one: Argument, condition: str) -> str:
    """Returns the line for an option or a positional, or "" if fish cannot know its values."""
    if one.names:
        parts = [
            f"-{'l' if name.startswith('--') else 's'} {name.lstrip('-')}" for name in one.names
        ]
        if one.value is not None:
            parts.append("-r" if _VALUES.get(one.value) == "-F" else "-x")
        parts.append(f"-d {_quoted(one.help)}")
    elif one.choices:
        condition += f"; and not __fish_seen_subcommand_from {' '.join(one.choices)}"
        parts = []
    elif one.value in _VALUES:
        parts = []
    else:
        return ""
    if one.choices:
        parts.append(f"-a {_quoted(' '.join(one.choices))}")
    elif one.value in _VALUES:
        parts.append(_VALUES[one.value])
    return f"complete -c livedma -n {_quoted(condition)} {' '.join(parts)}"


def _quoted(text: str) -> str:
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{plain}'"
