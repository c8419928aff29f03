# SPDX-License-Identifier: BSD-2-Clause
"""What looking at a thousand busy sessions costs, and whether a page of them stays fluid.

Somebody looks and nobody does, in turns of one load: a real server, its page in a real Chromium
(every other time its table is scrolled without a rest), `livedma top`, and a Prometheus that asks
each second.
"""

from __future__ import annotations

import os
import pty
import shutil
import socket
import statistics
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.pair import CROWD, LIMIT_S, Link, cpu_s, links, loaded, serving
from bench.report import Line

SESSIONS = 1000
TURNS = 4
TURN_S = 5.0
FLUID_MS = 50.0  # between two pictures while something moves
FRAMES_PER_S = 2
_LOOK = """() => {
    window.drawn = [];
    new MutationObserver(() => drawn.push(Number(document.body.dataset.frame)))
        .observe(document.body, {attributeFilter: ["data-frame"]});
}"""
_SCROLL = """() => {
    window.gaps = [];
    const box = document.querySelector(".rows");
    let before = performance.now();
    (function scroll(now) {
        gaps.push(now - before);
        before = now;
        box.scrollTop = (now / 10000 % 1) * box.scrollHeight;
        requestAnimationFrame(scroll);
    })(before);
}"""


@dataclass(frozen=True)
class _Server:
    pid: int
    page: str  #: its address


@contextmanager
def _serving(link: Link, directory: Path) -> Iterator[_Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd = listener.fileno()
        options = ("--credits=256", "--store-delay=50ms", "--policy=static", f"--web=fd:{fd}")
        with serving(link, directory / "looked-at", *options, pass_fds=[fd]) as process:
            yield _Server(process.pid, f"http://127.0.0.1:{listener.getsockname()[1]}")


@dataclass
class _PageLook:
    """What a browser did while it showed the page."""

    browser: Browser
    scrolls: bool = False  #: this time
    drawn: int = 0
    made: int = 0
    gaps_ms: list[float] = field(default_factory=list)  #: while it was scrolled
    thread_s: list[float] = field(default_factory=list)  #: of its main thread, for a frame

    @contextmanager
    def looking(self, server: _Server) -> Iterator[None]:
        with self.browser.new_context(viewport={"width": 1400, "height": 900}) as context:
            page = context.new_page()
            page.goto(server.page)
            page.locator("#sessions tr[data-id]").nth(10).wait_for()
            devtools = context.new_cdp_session(page)
            devtools.send("Performance.enable")
            page.evaluate(_LOOK)
            if self.scrolls:
                page.evaluate(_SCROLL)
            before_s = _thread_s(devtools)
            yield
            self._take(page, _thread_s(devtools) - before_s)

    def _take(self, page: Page, thread_s: float) -> None:
        drawn = page.evaluate("drawn")
        self.drawn += len(drawn)
        self.made += drawn[-1] - drawn[0] + 1
        if self.scrolls:
            self.gaps_ms += page.evaluate("gaps")[1:]
        else:
            self.thread_s.append(thread_s / len(drawn))
        self.scrolls = not self.scrolls


def _thread_s(devtools: CDPSession) -> float:
    found = devtools.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


@dataclass
class _TopLook:
    """What `livedma top` spent; its start is not counted."""

    cpu_s: float = 0.0

    @contextmanager
    def looking(self, server: _Server) -> Iterator[None]:
        outer, inner = pty.openpty()
        argv = ["livedma", "top", server.page.removeprefix("http://")]
        environment = dict(os.environ, TERM="xterm-256color", LINES="40", COLUMNS="140")
        with subprocess.Popen(
            argv, stdin=inner, stdout=inner, stderr=inner, env=environment
        ) as process:
            os.close(inner)
            shown = threading.Event()

            def read() -> None:
                seen = b""
                while seen := seen[-65536:] + os.read(outer, 65536):
                    if b"p99" in seen:
                        shown.set()

            threading.Thread(target=_until_error, args=(read,), daemon=True).start()
            try:
                if not shown.wait(LIMIT_S):
                    raise RuntimeError("livedma top showed nothing")
                before_s = cpu_s(process.pid)
                yield
                self.cpu_s += cpu_s(process.pid) - before_s
            finally:
                process.kill()
                process.wait()
                os.close(outer)


def _until_error(act: Callable[[], None]) -> None:
    """The terminal's other end is gone: EIO."""
    try:
        act()
    except OSError:
        return


@contextmanager
def _scraping(server: _Server) -> Iterator[None]:
    end = threading.Event()

    def scrape() -> None:
        while not end.wait(1.0):
            urllib.request.urlopen(f"{server.page}/metrics", timeout=LIMIT_S).read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _in_turns(
    server: _Server, looking: Callable[[_Server], AbstractContextManager[None]]
) -> tuple[float, float]:
    """The server's part of a core while somebody looks, and while nobody does."""
    parts: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        with looking(server):
            parts[0].append(_part(server))
        parts[1].append(_part(server))
    with_it, without = map(statistics.median, parts)
    return with_it, without


def _part(server: _Server) -> float:
    before_s, busy_s = time.monotonic(), cpu_s(server.pid)
    time.sleep(TURN_S)
    return (cpu_s(server.pid) - busy_s) / (time.monotonic() - before_s)


@contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def lines(directory: Path) -> Iterator[Line]:
    with (
        links() as (link, _),
        _serving(link, directory) as server,
        loaded(link, SESSIONS, *CROWD),
        _chromium() as browser,
    ):
        page = _PageLook(browser)
        served = _in_turns(server, page.looking)
        frames = page.drawn / page.made
        fluid = sum(gap <= FLUID_MS for gap in page.gaps_ms) / len(page.gaps_ms)
        thread_ms = statistics.median(page.thread_s) * 1e3
        yield Line("page: frames drawn", f"{page.drawn}", f"made {page.made}", frames, 0.95)
        yield Line(
            "page: pictures within 50 ms, scrolling",
            f"worst {max(page.gaps_ms):.0f} ms",
            f"{len(page.gaps_ms)} pictures",
            fluid,
            0.95,
        )
        yield _cost("page: browser's thread, a frame", thread_ms, 0.1)
        yield _served("page: server", served, 0.1)
        top = _TopLook()
        served = _in_turns(server, top.looking)
        frames_shown = TURNS * TURN_S * FRAMES_PER_S
        yield _cost("top: its process, a frame", top.cpu_s / frames_shown * 1e3, 0.1)
        yield _served("top: server", served, 0.1)
        yield _served("metrics each second: server", _in_turns(server, _scraping), 0.1)


def _cost(what: str, frame_ms: float, bar: float) -> Line:
    part = frame_ms * FRAMES_PER_S / 1e3
    return Line(what, f"{frame_ms:.1f} ms", f"a core, {FRAMES_PER_S}/s", part, bar, is_cost=True)


def _served(what: str, parts: tuple[float, float], bar: float) -> Line:
    with_it, without = parts
    cost = with_it - without
    return Line(what, f"{cost * 1e3:.0f} ms/s", f"a core, without {without:.2f}", cost, bar, True)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="livedma-bench-") as name:
        for line in lines(Path(name)):
            print(line, flush=True)
