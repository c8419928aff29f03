# SPDX-License-Identifier: BSD-2-Clause
"""The consoles of a page, typed into terminals of a machine that is theirs alone.

The machine is this one with a network, process numbers and runtime directories of its own, so that
a page may use fixed addresses and names, finds the server that it started, and leaves nothing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from documents import PRIVILEGED, ROOT, Block, Page, Step, expected, printed, steps
from needs import needs
from unprivileged import as_nobody

PATIENCE_S = 120.0

_numbers = itertools.count(1)

# The checkout and its Python may lie in a directory that this machine has of its own.
_BEGIN = """
ip link set lo up
kept=()
for path in "$@"; do
  at=$(mktemp -d)
  mount --rbind "$path" "$at"
  kept+=("$at")
done
for directory in /run/netns /run/livedma /srv /var/lib/livedma /home; do
  mkdir -p $directory
  mount -t tmpfs tmpfs $directory
done
for path in "$@"; do
  mkdir -p "$path"
  mount --move "${kept[0]}" "$path"
  rmdir "${kept[0]}"
  kept=("${kept[@]:1}")
done
install -d -o nobody /home/nobody
install -d -o nobody -m 700 /tmp/livedma-65534
mount -t tmpfs -o uid=65534,mode=700 tmpfs /tmp/livedma-65534
echo ready
exec sleep infinity
"""


class Machine:
    """Needs root. What was started on it ends with it."""

    def __init__(self, holder: subprocess.Popen[str], environment: dict[str, str]) -> None:
        found = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        self._inside = ["nsenter", "--target", found[0], "--net", "--mount", "--pid"]
        self._root = Path(f"/proc/{found[0]}/root")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # The directories of the user that started this (XDG_RUNTIME_DIR) are not this machine's.
        own = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
        # What a terminal would show at once, a file gets at once, too.
        self._environment = {**own, "PATH": path, "PYTHONUNBUFFERED": "1", **environment}
        self._environment.pop("COLUMNS", None)  # a terminal has its own size

    def home(self, user: str) -> Path:
        """The directory of a user on this machine, as it is seen from outside."""
        return self._root / "home" / user

    def start(self, command: str, home: Path, *, user: str | None = None, tty: int = -1) -> Running:
        """In its home directory, or that of the user that it runs as. tty: what it talks to."""
        number = next(_numbers)
        file, output = home / f"command-{number}.pid", home / f"command-{number}.out"
        argv = [*self._inside, "setsid", "--wait", "bash", "-c"]
        begin = f"echo $$ > {file}; cd {home} && exec"
        inner = ["bash", "-c", command]
        environment = self._environment
        if user is not None:
            begin = begin.replace(f"cd {home}", f"cd /home/{user}")
            inner = [*as_nobody(), *inner]
            environment = {**environment, "HOME": f"/home/{user}", "USER": user, "LOGNAME": user}
        with output.open("wb") as written:
            process = subprocess.Popen(
                [*argv, f"{begin} {shlex.join(inner)}"],
                stdin=subprocess.DEVNULL if tty < 0 else tty,
                stdout=written if tty < 0 else tty,
                stderr=subprocess.STDOUT if tty < 0 else tty,
                env=environment,
            )
        return Running(process, file, output, self._inside)


class Running:
    """A command, by its number on its machine."""

    def __init__(
        self, process: subprocess.Popen[bytes], file: Path, output: Path, inside: list[str]
    ) -> None:
        self.process = process
        self._file, self._output, self._inside = file, output, inside

    @property
    def text(self) -> str:
        """What it printed so far."""
        return self._output.read_text(errors="replace")

    def interrupt(self) -> None:
        """As Ctrl-C does: all of the terminal's."""
        group = self._file.read_text().strip()
        subprocess.run([*self._inside, "kill", "-INT", "--", f"-{group}"], check=True)

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)


@contextmanager
def machine(**environment: str) -> Iterator[Machine]:
    """A machine that is gone afterwards."""
    argv = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv += ["bash", "-ec", _BEGIN, "begin", *_hidden(ROOT, Path(sys.base_prefix))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield Machine(holder, environment)
        finally:
            holder.kill()


def _hidden(*paths: Path) -> list[str]:
    """Those of them that lie in a directory which the machine has of its own."""
    return [str(path) for path in paths if path.parts[1:2] in (("srv",), ("home",))]


def adapted(command: str) -> str:
    """A command as it is typed in a checkout."""
    return re.sub(r"^make ", f"make -C {ROOT} ", re.sub(r"^sudo ", "", command))


def furnish(home: Path) -> None:
    """A directory for a page: what it refers to of the checkout is there."""
    for name in ("tests", "packaging"):
        (home / name).symlink_to(ROOT / name)


def played(page: Page, home: Path, user: str | None = None, **environment: str) -> int:
    """Plays a page on a machine of its own, and returns how many commands were typed.

    home: a directory for root there. user: types, if it is not root.
    """
    needs(os.geteuid() == 0, "a machine of its own needs root")
    with machine(**environment) as here:
        furnish(home if user is None else here.home(user))
        return play(page, here, home, user)


class Terminal:
    """Runs one command after the other."""

    def __init__(self, on: Machine, home: Path, user: str | None) -> None:
        self._machine, self._home, self._user = on, home, user
        self._running: Running | None = None

    def type(self, step: Step, *, may_go_on: bool) -> None:
        """Runs it and compares what it prints. may_go_on: that is enough, it need not end."""
        if step.command is not None:
            self.finish()
            self._running = self._machine.start(adapted(step.command), self._home, user=self._user)
        running = self._running
        assert running is not None, f"{step.where}: nothing runs here"
        if may_go_on or step.interrupted:
            _await(step, running)
        if step.interrupted:
            running.interrupt()
        if step.interrupted or not may_go_on:
            self._running = None
            status = running.wait()
            good = (0, 130) if step.interrupted else (0,)
            assert status in good, f"{step.where}: {status}\n{running.text}"
        if not may_go_on and not step.interrupted and step.shown:
            shown = "\n".join(step.shown)
            assert expected(step.shown).fullmatch(printed(running.text)), (
                f"{step.where}: shown is\n{shown}\nprinted was\n{running.text}"
            )

    def repeat(self, step: Step) -> None:
        """Looks again until it sees what is shown."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.type(step, may_go_on=False)
            except AssertionError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.5)
            else:
                return

    def press(self, step: Step, keys: str) -> None:
        """A command with a screen of its own, until it is left by keys."""
        self.finish()
        assert step.command is not None
        ours, its = pty.openpty()
        running = self._machine.start(
            f"stty rows 40 cols 120; TERM=xterm-256color {step.command}",
            self._home,
            user=self._user,
            tty=its,
        )
        os.close(its)
        screen, pressed, end_s = b"", False, time.monotonic() + PATIENCE_S
        try:
            while running.process.poll() is None and time.monotonic() < end_s:
                if select.select([ours], [], [], 0.5)[0]:
                    with contextlib.suppress(OSError):  # the other end is closed
                        screen += os.read(ours, 65536)
                if not pressed and all(line.encode() in screen for line in step.shown):
                    os.write(ours, keys.encode())
                    pressed = True
            assert pressed and running.wait() == 0, f"{step.where}: {screen!r}"
        finally:
            os.close(ours)

    def finish(self) -> None:
        """What still runs here has its end; its status does not count."""
        if self._running is not None and self._running.process.poll() is None:
            self._running.interrupt()
            self._running.wait()
        self._running = None


def _await(step: Step, running: Running) -> None:
    """What is shown has been printed, in whole."""
    end_s, pattern = time.monotonic() + PATIENCE_S, expected(step.shown)
    while True:
        is_over = running.process.poll() is not None or time.monotonic() > end_s
        if pattern.match(printed(running.text)):
            return
        shown = "\n".join(step.shown)
        assert not is_over, f"{step.where}: shown is\n{shown}\nprinted was\n{running.text}"
        time.sleep(0.05)


def play(page: Page, on: Machine, home: Path, user: str | None = None) -> int:
    """Types and runs what a page has, in its order. How many commands there were.

    user: types them, without privilege, unless a block names another; None is root. Blocks
    that are `privileged` are then left out. A block with `file NAME` is written to that file.
    """
    terminals: dict[str, Terminal] = {}
    count = 0
    where = home if user is None else on.home(user)
    try:
        for block in page.blocks:
            if name := block.option("file"):
                (where / name).write_text(block.text + "\n")
            elif block.not_run is None and not (user is not None and block.has(PRIVILEGED)):
                if block.kind == "python":
                    program(block, where).write_text(block.text + "\n")
                if todo := typed(page, block):
                    _play(block, todo, terminals, on, home, block.option("user") or user)
                    count += sum(step.command is not None for step in todo)
    finally:
        for terminal in terminals.values():
            terminal.finish()
    return count


def program(block: Block, home: Path) -> Path:
    """The file of a block of Python."""
    return home / f"block-{block.line}.py"


def typed(page: Page, block: Block) -> list[Step]:
    """What is done with a block: commands are typed, programs are run."""
    if block.kind == "python":
        shown = page.printed_by(block)
        return [Step(f"python {program(block, Path())}", shown, False, block.where)]
    return list(steps(block)) if block.kind == "console" else []


def _play(
    block: Block,
    todo: list[Step],
    terminals: dict[str, Terminal],
    on: Machine,
    home: Path,
    user: str | None,
) -> None:
    name = block.option("terminal")
    terminal = terminals.setdefault(name or "", Terminal(on, home, user))
    for number, step in enumerate(todo):
        if keys := block.option("keys"):
            terminal.press(step, keys)
        elif block.has("again"):
            terminal.repeat(step)
        else:
            is_last = number == len(todo) - 1
            terminal.type(step, may_go_on=name is not None and is_last)
