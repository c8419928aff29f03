# SPDX-License-Identifier: BSD-2-Clause
"""The page in a real browser, of a real server under load."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser
from tests.control.live import MIB, DrivenLoad, running, wait_for
from tests.ui.browser import Watched, chromium, looking

from livedma.control.events import Event
from livedma.control.running import Controlled, Options
from livedma.nfs.control import Control, ControlError
from livedma.ui.web.server import Web

pytestmark = pytest.mark.slow

TOKEN = "what the server printed"
SESSIONS = 32  # of four calls each, which want twice as many buffers as there are


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@dataclass(frozen=True)
class Paged:
    it: Controlled
    control: Control
    address: str

    def told(self, kind: str) -> list[Event]:
        return [one for one in self.it.controller.events.after() if one.kind == kind]


@contextmanager
def paged(tmp_path: Path, policy: str) -> Iterator[Paged]:
    with running(tmp_path, Options(policy)) as (it, control):
        sock = socket.create_server(("127.0.0.1", 0))
        with Web(it, sock, TOKEN):
            yield Paged(it, control, f"http://127.0.0.1:{sock.getsockname()[1]}/")


def mapped(page: Watched) -> str:
    return page.text(".meter:has([aria-label=Memory]) .text")


def test_it_follows_a_server_and_marks_its_decisions(browser: Browser, tmp_path: Path) -> None:
    with paged(tmp_path, "extend") as server, looking(browser, server.address) as shown:
        shown.wait("() => document.body.dataset.frame")
        assert "No client is connected" in shown.text("#connections")
        assert shown.text("#server") == str(tmp_path / "export")
        assert shown.text("#live") == "live"
        with DrivenLoad(SESSIONS) as load:
            load.sessions(SESSIONS)
            shown.wait("() => document.querySelectorAll('#sessions tr[data-id]').length > 10")
            first = int(shown.page.locator("body").get_attribute("data-frame") or 0)
            before = shown.text(".figures")
            shown.wait("old => document.querySelector('.figures').innerText !== old", before)
            shown.drawn(first + 3)
            done = wait_for(lambda: server.told("done"))[0]
            # On the time lines, for the keyboard: the mark has the focus, its lines are shown.
            mark = shown.page.locator(f".mark-of[aria-label*='{done.text}']")
            mark.wait_for()
            mark.focus()
            shown.page.locator(".tip", has_text=done.text).wait_for()
            shown.page.keyboard.press("Escape")
            shown.page.locator(".tip").wait_for(state="hidden")
            # For a pointer.
            mark.hover()
            shown.page.locator(".tip", has_text=done.text).wait_for()
            shown.page.mouse.move(0, 0)
            assert done.text in shown.text("#decisions")
            # The window has another part, and the figures say so.
            shown.wait("() => document.querySelectorAll('.part[data-use=data]').length >= 2")
            assert not mapped(shown).startswith("4 MiB")
            diagnosed = shown.text(".connection .chip")
            assert diagnosed == "fine" or diagnosed.startswith(("slow", "fast enough"))


def test_what_is_done_by_hand_is_asked_first(browser: Browser, tmp_path: Path) -> None:
    refused = "status of 401"
    with (
        paged(tmp_path, "static") as server,
        DrivenLoad(SESSIONS) as load,
        looking(
            browser, server.address, fragment="#token=a wrong one", forgiven=(refused,)
        ) as shown,
    ):
        page = shown.page
        load.sessions(SESSIONS)
        page.locator("[data-act=extend]").wait_for()
        assert page.url == server.address  # a person that sees it there may not act
        assert mapped(shown).startswith("4 MiB mapped of 16 MiB")

        page.locator("[data-act=extend]").click()
        dialog = page.get_by_role("dialog")
        assert "4 MiB more of its window get memory" in dialog.inner_text()
        dialog.get_by_role("button", name="Cancel").click()
        dialog.wait_for(state="hidden")
        assert server.told("hand") == []

        # A wrong token is refused in words; the question stays, with room for another.
        page.locator("[data-act=extend]").click()
        page.get_by_label("in MiB").fill("2")
        dialog.get_by_role("button", name="Map 2 MiB more").click()
        page.get_by_text("The server refused this token: nothing was done.").wait_for()
        assert server.told("hand") == []
        page.get_by_label("Token", exact=True).fill(TOKEN)
        dialog.get_by_role("button", name="Map 2 MiB more").click()
        dialog.wait_for(state="hidden")

        (event,) = server.told("hand")
        assert event.data["bytes"] == 2 * MIB
        assert event.text in shown.text("#said")
        shown.wait("() => document.querySelector('.meter .text').innerText.startsWith('6.')")
        page.locator("#decisions li[data-kind=hand]").wait_for()

        # The token is kept now; a policy is chosen with the keyboard alone.
        page.locator("#change-policy").focus()
        page.keyboard.press("Enter")
        page.locator("input[name=policy]:focus, #ask :focus").first.wait_for()
        page.locator("input[name=policy][value=static]").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        dialog.wait_for(state="hidden")
        shown.wait("() => document.querySelector('#facts dd').innerText.includes('extend')")
        assert server.it.controller.policy.name == "extend"


def test_what_the_budget_refuses_is_marked_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """The control socket asks for it, and the page shows why it failed."""
    with (
        paged(tmp_path, "static") as server,
        DrivenLoad(SESSIONS) as load,
        looking(browser, server.address) as shown,
    ):
        load.sessions(1)
        shown.page.locator("[data-act=extend]").wait_for()
        server.it.budget.limit_bytes = server.it.budget.mapped_bytes + MIB
        (connection,) = server.it.service.rdma[0].connections
        with pytest.raises(ControlError, match="exceed the budget"):
            server.control.ask("extend", connection=connection.number, bytes=2 * MIB)
        failed = shown.page.locator("#decisions li[data-kind=failed]")
        failed.wait_for()
        assert "exceed the budget" in failed.inner_text()
        assert mapped(shown).startswith("4 MiB mapped of 16 MiB")


class _Elsewhere(BaseHTTPRequestHandler):
    """Another site, whose page knows the token and tries to use it."""

    def __init__(self, target: str, *args: object) -> None:
        self._target = target
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        body = f"""<!DOCTYPE html><title>elsewhere</title>
            <form method="post" action="{self._target}do/policy" enctype="text/plain">
            <input name='{{"name":"spread","x":"' value='"}}'></form>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def elsewhere(target: str) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), partial(_Elsewhere, target)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


_TRIES = """async ([target, token]) => {
    const body = JSON.stringify({name: "spread"});
    const json = {"Content-Type": "application/json", Authorization: `Bearer ${token}`};
    const tries = [
        ["do/policy", {method: "POST", body, headers: json}],
        ["do/policy", {method: "POST", body, headers: {"Content-Type": "text/plain"}}],
        ["do/policy", {method: "POST", body, mode: "no-cors", credentials: "include"}],
        ["frame", {}],
        ["why", {}],
    ];
    const found = [];
    for (const [path, how] of tries) {
        found.push(await fetch(target + path, how).then((one) => one.type, () => "refused"));
    }
    found.push(await new Promise((resolve) => {
        const source = new EventSource(target + "stream");
        source.onmessage = source.onopen = () => resolve("open");
        source.onerror = () => (source.close(), resolve("refused"));
    }));
    return found;
}"""


def test_pages_of_others_can_neither_act_nor_read(browser: Browser, tmp_path: Path) -> None:
    with (
        paged(tmp_path, "static") as server,
        elsewhere(server.address) as other,
        browser.new_context() as context,
    ):
        page = context.new_page()
        page.goto(other)
        found = page.evaluate(_TRIES, [server.address, TOKEN])
        assert found == ["refused"] * 6
        with page.expect_navigation() as gone:
            page.evaluate("document.forms[0].submit()")
        answer = gone.value
        assert answer is not None and answer.status == 403
        assert "another site" in answer.json()["error"]
        assert server.it.controller.policy.name == "static"
        assert server.told("policy") == []
