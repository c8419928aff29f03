# SPDX-License-Identifier: BSD-2-Clause
"""What it costs to watch the kernel's nfsd: from inside of it, and on the wire beside it.

nfsd is in one emulated guest, and the watch with it; in the other is the kernel's client, which
reads 4 KiB at a time from the server's memory. One load runs all the time; a watch is attached and
detached beside it, with a snapshot a second, and what is compared are neighbouring parts. Parts
of which neither is watched say what such a comparison can tell. What the programs take is measured
by the kernel (bpf_stats), apart from the rates: that costs something, too.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.report import Line, judge
from livedma.lab.channel import Command
from livedma.lab.guest import Guest, Lab

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, sys.path[0] + "/conformance")
from inside_nfsd import LIMIT_S, MOUNTS, mounted

from guest_package import put_package

PAIRS = 5  # of parts, with and without: to attach inside takes an emulated guest some seconds
SETTLE_S = 1.0  # before a part: the emulator translates anew what BPF has changed in the kernel
PART_S = 2.0
PROGRAMS_S = 5.0
SNAPSHOT_S = 1.0
JOBS = 2  # of the client, one call at a time each
#: What is left of the rate, at least. Guests wait for each other and for what else the machine
#: does, so two parts without a watch differ by a tenth as well.
RATE_BAR = 0.85
#: The CPU time that emulating the server takes for a call, at most; it does not count waiting.
CPU_BAR = 1.15
#: Of the CPU time that the guest spends meanwhile, at most. They were 2 % and 3 % when made, and
#: 2.3 % to 5.8 % beside much other work, which interrupts them as it does the rest.
PROGRAMS_BAR = 0.05

T = TypeVar("T")

#: In the server's guest: attaches and detaches, and answers with what its programs have taken so
#: far, and with the CPU time that the guest has spent.
_WATCHING = f"""
import os, sys, threading
from pathlib import Path
from livedma.monitor import Monitor
from livedma.monitor.nfsd import NfsdSource

MAKE = {{"inside": NfsdSource, "wire": lambda: Monitor(["eth0"])}}
lock, sources = threading.Lock(), []

def look():
    while True:
        end.wait({SNAPSHOT_S})
        with lock:
            for source in sources:
                source.snapshot()

def taken():
    runs = ns = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        try:
            found = dict(line.split(":") for line in info.read_text().splitlines() if ":" in line)
        except (OSError, ValueError):
            continue
        runs, ns = runs + int(found.get("run_cnt", 0)), ns + int(found.get("run_time_ns", 0))
    user, nice, system, idle, wait, irq, softirq, *_ = Path("/proc/stat").read_text().split()[1:]
    ticks = sum(map(int, (user, nice, system, irq, softirq)))
    return runs, ns, ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

end = threading.Event()
threading.Thread(target=look, daemon=True).start()
for number, order in enumerate(map(str.strip, sys.stdin)):
    with lock:
        if order == "off":
            sources.pop().close()
        elif order:
            sources.append(MAKE[order]())
            sources[0].attach()  # the monitor is: there it has no effect
        print(number, *taken(), flush=True)
"""


class _Taken(NamedTuple):
    runs: int  #: of the programs that are attached
    ns: int  #: that they took
    busy_ns: int  #: of the guest's CPU


class _Part(NamedTuple):
    rate: float  #: of calls, a second
    cpu_s: float  #: of a call: what emulating the server took


class _Watching:
    """Orders the program in the guest about; each order is answered by a line."""

    def __init__(self, command: Command) -> None:
        self._command, self._orders = command, 0

    def ask(self, order: str) -> _Taken:
        self._command.write(f"{order}\n".encode())
        self._orders += 1
        while self._command.output.count(b"\n") < self._orders:
            if self._command.status is not None:
                raise RuntimeError(self._command.text)
            self._command.read(LIMIT_S)
        _, *taken = map(int, self._command.output.splitlines()[self._orders - 1].split())
        return _Taken(*taken)

    @contextmanager
    def attached(self, how: str) -> Iterator[None]:
        """how: inside, wire, or nothing."""
        if how:
            self.ask(how)
        yield
        if how:
            self.ask("off")


@contextmanager
def _reading(client: Guest, at: str) -> Iterator[None]:
    mark = "/tmp/reading"
    read = f"while [ -e {mark} ]; do dd if={at}/data$i of=/dev/null bs=4k iflag=direct; done"
    job = f"dd if=/dev/zero of={at}/data$i bs=1M count=4; {read}"
    client.run(f"touch {mark}", check=True)
    with client.command(f"for i in $(seq {JOBS}); do ({job}) 2>/dev/null & done; wait") as load:
        client.wait_until(f"[ -s {at}/data{JOBS} ]", LIMIT_S)
        yield
        client.run(f"rm {mark}", check=True)
        load.wait(LIMIT_S)


def _cpu_s(guest: Guest) -> float:
    """Returns the CPU time that this host has given to a guest."""
    looked = (path.read_text() for path in Path(f"/proc/{guest.pid()}/task").glob("*/schedstat"))
    return sum(int(text.split()[0]) for text in looked) / 1e9


def _during(lab: Lab, at: str, seconds: float, look: Callable[[], T]) -> tuple[float, float, T, T]:
    """Returns the time by the client's clock, the calls that it got answers to, and what `look`
    returned before and after.
    """
    found = f'$1 == "device" {{here = $5 == "{at}"}} here && $1 == "xprt:" {{print $9}}'
    count = f"echo $(cut -d' ' -f1 /proc/uptime; awk '{found}' /proc/self/mountstats)"
    seen: list[T] = []
    with lab.b.command(f"sleep {SETTLE_S}; {count}; sleep {seconds}; {count}") as command:
        while len(seen) < 2:
            command.read(LIMIT_S)
            if command.output.count(b"\n") > len(seen):
                seen.append(look())
        then_s, then, now_s, now = map(float, command.output.split())
    return now_s - then_s, now - then, seen[0], seen[1]


def _part(lab: Lab, at: str) -> _Part:
    spent_s, calls, before_s, after_s = _during(lab, at, PART_S, lambda: _cpu_s(lab.a))
    return _Part(calls / spent_s, (after_s - before_s) / calls)


def _compared(lab: Lab, watching: _Watching, how: str, at: str, name: str) -> Iterator[Line]:
    parts: dict[bool, list[_Part]] = {True: [], False: []}
    for pair in range(PAIRS):
        # Which of them comes first changes, for what drifts.
        for is_on in (pair % 2 == 0, pair % 2 == 1):
            with watching.attached(how if is_on else ""):
                parts[is_on].append(_part(lab, at))

    def median(is_on: bool, figure: Callable[[_Part], float]) -> float:
        return statistics.median(map(figure, parts[is_on]))

    def ratio(figure: Callable[[_Part], float]) -> float:
        pairs = zip(parts[True], parts[False], strict=True)
        return statistics.median(figure(on) / figure(off) for on, off in pairs)

    rate, cpu_s = attrgetter("rate"), attrgetter("cpu_s")
    on, off = (f"{median(one, rate):,.0f}/s" for one in (True, False))
    yield Line(name, on, f"without {off}", ratio(rate), RATE_BAR)
    on, off = (f"{median(one, cpu_s) * 1e6:,.0f} us" for one in (True, False))
    yield Line("  the server's CPU for a call", on, off, ratio(cpu_s), CPU_BAR, is_cost=True)


def _programs(lab: Lab, watching: _Watching, how: str, at: str) -> Line:
    """What the programs take of the CPU time that the guest spends, and of a call."""
    setting = "/proc/sys/kernel/bpf_stats_enabled"
    with watching.attached(how):
        lab.a.run(f"echo 1 > {setting}", check=True)
        _, calls, before, after = _during(lab, at, PROGRAMS_S, lambda: watching.ask(""))
        taken = _Taken(*(now - then for now, then in zip(after, before, strict=True)))
        lab.a.run(f"echo 0 > {setting}", check=True)
    return Line(
        f"  its programs, {taken.runs / calls:.1f} runs a call",
        f"{taken.ns / calls / 1e3:.1f} us a call",
        f"the guest's CPU {taken.busy_ns / calls / 1e3:.0f} us",
        taken.ns / taken.busy_ns,
        PROGRAMS_BAR,
        is_cost=True,
    )


def _of(lab: Lab, watching: _Watching, transport: str) -> Iterator[Line]:
    # Of TCP there is nothing to see on the wire.
    hows = ("", "inside", "wire") if transport == "rdma" else ("inside",)
    with mounted(lab.b, transport) as at, _reading(lab.b, at):
        for how in hows:
            name = f"4 KiB reads over {transport.upper()}, {how or 'neither watched'}"
            yield from _compared(lab, watching, how, at, name)
            if how:
                yield _programs(lab, watching, how, at)


def lines() -> Iterator[Line]:
    with Lab() as lab:
        lab.a.run("/lab/nfs-server", check=True)
        livedma = put_package(lab.a, ("monitor", "nfsd", "wire", "xdr"))
        lab.a.put(_WATCHING.encode(), "/tmp/watching.py")
        program = livedma.replace("-m livedma", "/tmp/watching.py")
        with lab.a.command(f"exec env {program}", takes_input=True) as command:
            watching = _Watching(command)
            for transport in MOUNTS:
                yield from _of(lab, watching, transport)


def main() -> int:
    return judge(lines())


if __name__ == "__main__":
    sys.exit(main())
