# SPDX-License-Identifier: BSD-2-Clause
"""All tests, in parts: those with guests, or other hosts of their own, run beside those that share
this host's addresses, and what needs the machine for itself comes afterwards.

    python tests/parts.py [--quick] [OPTION OF PYTEST ...]

--quick: only what is not slow, in two halves; those with devices share addresses, and are in one.

Lines carry the name of their part. Every part runs to its end, whatever fails in another, and the
last lines name every test that failed; Ctrl-C ends all parts. A file of --junit-xml gets the part's
name in front of its suffix.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_DEVICES = tuple(f"tests/{name}" for name in ("control", "nfs", "rdma", "rpc", "ui"))

#: By its name, what pytest is told to find a part's tests; those of a phase run beside each other.
Phase = dict[str, tuple[str, ...]]
WHOLE: tuple[Phase, ...] = (
    {
        "guests": ("-m", "(guest or apart) and not alone"),
        "host": ("-m", "not guest and not apart and not alone"),
    },
    {"alone": ("-m", "alone")},
)
QUICK: tuple[Phase, ...] = (
    {
        "device": ("-m", "not slow", *_DEVICES),
        "others": ("-m", "not slow", *(f"--ignore={one}" for one in _DEVICES)),
    },
)
_WIDTH = max(len(name) for phase in (*WHOLE, *QUICK) for name in phase)
_INTERRUPTED, _NO_TESTS = 2, 5  # of pytest's exit statuses
_ALONE = "pytest.mark.alone"
_FAILURE = re.compile(r"(\x1b\[\d+m)*(FAILED|ERROR)(\x1b\[\d*m)* tests/")
_XML = re.compile(r"(--junit-?xml[= ])(\S+)")


class Ended(NamedTuple):
    part: str
    status: int
    seconds: float
    failures: list[str]  # as pytest's summary has them

    def __str__(self) -> str:
        words = {0: "passed", _INTERRUPTED: "stopped", _NO_TESTS: "no tests"}
        return f"{words.get(self.status, 'FAILED')} in {self.seconds:.0f} s"


class Part:
    """A pytest of its own, whose output is printed line by line."""

    def __init__(self, name: str, which: Sequence[str], options: Sequence[str]) -> None:
        self.name = name
        self._failures: list[str] = []
        environment = {**os.environ, "COLUMNS": str(_columns())}
        if sys.stdout.isatty():
            environment["PY_COLORS"] = "1"
        if given := environment.get("PYTEST_ADDOPTS"):
            environment["PYTEST_ADDOPTS"] = named(given, name)
        argv = [sys.executable, "-m", "pytest", "-o", f"cache_dir=.pytest_cache/{name}", *which]
        self._began_s = time.monotonic()
        self._process = subprocess.Popen(
            [*argv, *shlex.split(named(shlex.join(options), name)), *_files(name)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C comes once, from here: a second one would end the cleaning up
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            say(self.name, line.rstrip("\n"))
            if _FAILURE.match(line):
                self._failures.append(line.rstrip("\n"))
        self._ended_s = time.monotonic()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def wait(self) -> Ended:
        status = self._process.wait()
        self._reader.join()
        return Ended(self.name, status, self._ended_s - self._began_s, self._failures)


def _files(part: str) -> list[str]:
    """Where the tests of a part are, if that is soon found: pytest imports all it looks through."""
    if part != "alone":
        return []
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in files if _ALONE in file.read_text()]


def named(options: str, part: str) -> str:
    """Options, with a file of results for this part alone."""

    def rename(found: re.Match[str]) -> str:
        path = Path(found[2])
        return f"{found[1]}{path.with_name(f'{path.stem}-{part}{path.suffix}')}"

    return _XML.sub(rename, options)


def say(part: str, line: str) -> None:
    print(f"{part:{_WIDTH}} | {line}".rstrip(), flush=True)


def _columns() -> int:
    return max(60, shutil.get_terminal_size().columns - _WIDTH - 3)


@contextmanager
def interrupting(parts: Sequence[Part], note: Callable[[], None]) -> Iterator[None]:
    """A signal that ends this ends its parts, each of which cleans up."""

    def pass_on(*_: object) -> None:
        note()
        for part in parts:
            part.interrupt()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, pass_on) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def main(argv: Sequence[str]) -> int:
    is_quick = argv[:1] == ["--quick"]
    options = argv[is_quick:]
    ended: list[Ended] = []
    interruptions: list[None] = []
    for phase in QUICK if is_quick else WHOLE:
        parts = [Part(name, which, options) for name, which in phase.items()]
        with interrupting(parts, lambda: interruptions.append(None)):
            ended += [part.wait() for part in parts]
        if interruptions:
            break
    for one in ended:
        for failure in one.failures:
            say(one.part, failure)
    for one in ended:
        say(one.part, str(one))
    found = {one.status for one in ended}
    if interruptions:
        return _INTERRUPTED
    return _NO_TESTS if found == {_NO_TESTS} else max(found - {_NO_TESTS}, key=abs)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
