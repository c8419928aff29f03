"""The consoles of a page, typed into terminals of a machine that is theirs alone.

The machine is this one with a network, process numbers and runtime directories of its own, so that
a page may use fixed addresses and names, finds the server that it started, and leaves nothing.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from documents import ROOT, Block, Page, Step, expected, printed, steps

PATIENCE_S = 120.0

_BEGIN = """
ip link set lo up
for directory in /run/netns /run/livedma /srv /var/lib/livedma; do
  mkdir -p $directory
  mount -t tmpfs tmpfs $directory
done
echo ready
exec sleep infinity
"""


class Machine:
    """Needs root. What was started on it ends with it."""

    def __init__(self, holder: subprocess.Popen[str], environment: dict[str, str]) -> None:
        found = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        self._inside = ["nsenter", "--target", found[0], "--net", "--mount", "--pid"]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, **environment}

    def start(self, command: str, output: IO[bytes], home: Path, **options: int) -> Running:
        file = home / f"pid-{time.monotonic_ns()}"
        script = f"echo $$ > {file}; cd {home} || exit; {command}"
        argv = [*self._inside, "setsid", "--wait", "bash", "-c", script]
        ignored = subprocess.DEVNULL
        process = subprocess.Popen(
            argv,
            stdin=options.get("terminal", ignored),
            stdout=options.get("terminal", output),
            stderr=options.get("terminal", subprocess.STDOUT),
            env=self._environment,
        )
        return Running(process, file, self._inside)


class Running:
    """A command, by its number on its machine."""

    def __init__(self, process: subprocess.Popen[bytes], file: Path, inside: list[str]) -> None:
        self.process = process
        self._file, self._inside = file, inside

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
    with subprocess.Popen(
        [*argv, "bash", "-ec", _BEGIN], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            yield Machine(holder, environment)
        finally:
            holder.kill()


def adapted(command: str) -> str:
    """A command as it is typed in a checkout, by who may do anything."""
    return re.sub(r"^make ", f"make -C {ROOT} ", re.sub(r"^sudo ", "", command))


def furnish(home: Path) -> None:
    """A directory for a page: what it refers to of the checkout is there."""
    for name in ("tests", "packaging"):
        (home / name).symlink_to(ROOT / name)


class Terminal:
    """Runs one command after the other."""

    def __init__(self, on: Machine, home: Path) -> None:
        self._machine, self._home = on, home
        self._output = tempfile.TemporaryFile()
        self._running: Running | None = None
        self._step: Step | None = None

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

    def type(self, step: Step, *, may_go_on: bool) -> None:
        """Runs it and compares what it prints. may_go_on: that is enough, it need not end."""
        if step.command is not None:
            self.finish()
            self._output = tempfile.TemporaryFile()
            self._running = self._machine.start(adapted(step.command), self._output, self._home)
            self._step = step
        running = self._running
        assert running is not None, f"{step.where}: nothing runs here"
        if may_go_on or step.interrupted:
            self._await(step)
        if step.interrupted:
            running.interrupt()
            status = running.wait()
            assert status in (0, 130), f"{step.where}: {status}\n{self._text()}"
            self._running = None
        elif not may_go_on:
            status = running.wait()
            assert status == 0, f"{step.where}: {status}\n{self._text()}"
            self._running = None
            self._compare(step, whole=True)

    def press(self, step: Step, keys: str) -> None:
        """A command with a screen of its own, until it is left by keys."""
        self.finish()
        assert step.command is not None
        ours, its = pty.openpty()
        os.environ.setdefault("TERM", "xterm-256color")
        running = self._machine.start(
            f"stty rows 40 cols 120; {step.command}", self._output, self._home, terminal=its
        )
        os.close(its)
        screen, pressed, end_s = b"", False, time.monotonic() + PATIENCE_S
        try:
            while running.process.poll() is None:
                assert time.monotonic() < end_s, f"{step.where}: {screen!r}"
                if select.select([ours], [], [], 0.5)[0]:
                    try:
                        screen += os.read(ours, 65536)
                    except OSError:  # the other end is closed
                        break
                text = screen.decode(errors="replace")
                if not pressed and all(line in text for line in step.shown):
                    os.write(ours, keys.encode())
                    pressed = True
            assert pressed, f"{step.where}: {screen!r}"
            assert running.wait() == 0, f"{step.where}: {screen!r}"
        finally:
            os.close(ours)

    def finish(self) -> None:
        """What still runs here has its end; its status does not count."""
        if self._running is not None and self._running.process.poll() is None:
            self._running.interrupt()
            self._running.wait()
        self._running = None

    def _text(self) -> str:
        self._output.seek(0)
        return self._output.read().decode()

    def _await(self, step: Step) -> None:
        """What is shown has been printed, in whole."""
        end_s = time.monotonic() + PATIENCE_S
        while not self._compare(step, whole=False):
            assert self._running is not None
            ended = self._running.process.poll() is not None
            if (ended or time.monotonic() > end_s) and not self._compare(step, whole=False):
                raise AssertionError(
                    f"{step.where}: shown is not what was printed:\n{self._text()}"
                )
            time.sleep(0.05)

    def _compare(self, step: Step, *, whole: bool) -> bool:
        found, pattern = printed(self._text()), expected(step.shown)
        if not whole:
            return pattern.match(found) is not None
        if step.shown and not pattern.fullmatch(found):
            shown = "\n".join(step.shown)
            raise AssertionError(f"{step.where}: shown is\n{shown}\nprinted was\n{self._text()}")
        return True


def play(page: Page, on: Machine, home: Path) -> int:
    """Types all consoles of a page that can be run, in their order. How many commands there were.

    A block with `file NAME` is written to that file.
    """
    terminals: dict[str, Terminal] = {}
    count = 0
    try:
        for block in page.blocks:
            if name := block.option("file"):
                (home / name).write_text(block.text + "\n")
            elif block.kind == "console" and block.not_run is None:
                count += _play(block, terminals, on, home)
    finally:
        for terminal in terminals.values():
            terminal.finish()
    return count


def _play(block: Block, terminals: dict[str, Terminal], on: Machine, home: Path) -> int:
    name = block.option("terminal")
    terminal = terminals.setdefault(name or "", Terminal(on, home))
    todo = list(steps(block))
    for number, step in enumerate(todo):
        if keys := block.option("keys"):
            terminal.press(step, keys)
        elif block.has("again"):
            terminal.repeat(step)
        else:
            is_last = number == len(todo) - 1
            terminal.type(step, may_go_on=name is not None and is_last)
    return sum(step.command is not None for step in todo)
