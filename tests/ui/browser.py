# SPDX-License-Identifier: BSD-2-Clause
"""Real Chromium, and what a page must never do in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, Request, sync_playwright

from needs import needs

WAIT_MS = 30_000


@contextmanager
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    needs(path, "pages are looked at with the system's chromium")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=as_root)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page whose complaints and requests are kept. forgiven: parts of complaints that a test
    provokes.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    forgiven: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("console", lambda said: self._complain(said.type, said.text))
        self.page.on("pageerror", lambda error: self._complain("error", str(error)))
        self.page.on("request", self._ask)

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _ask(self, request: Request) -> None:
        self.hosts.add(urlsplit(request.url).netloc)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def wait(self, condition: str, argument: Any = None) -> None:
        """For a function of JavaScript to become true; the page allows no expression."""
        self.page.wait_for_function(condition, arg=argument)

    def drawn(self, number: int) -> None:
        """Waits for a frame, or one after it, to be on the screen."""
        self.wait("number => Number(document.body.dataset.frame) >= number", number)


@contextmanager
def looking(
    browser: Browser,
    address: str,
    *,
    fragment: str = "",
    forgiven: tuple[str, ...] = (),
    **context: Any,
) -> Iterator[Watched]:
    """A new page, without anything kept from others. At the end: it asked nobody else, and no
    complaint is on the console.
    """
    with browser.new_context(**context) as fresh:
        watched = Watched(fresh.new_page(), forgiven=forgiven)
        watched.page.goto(address + fragment)
        yield watched
        complaints = [
            one for one in watched.complaints if not any(part in one for part in forgiven)
        ]
        assert complaints == []
        assert watched.hosts == {urlsplit(address).netloc}
