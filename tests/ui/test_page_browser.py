# SPDX-License-Identifier: BSD-2-Clause
"""The page in a real browser, of a feed that a test leads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, expect
from tests.ui.browser import Watched, chromium, looking
from tests.ui.fake_server import TOKEN, FakeFeed, shown

from livedma.control import words
from livedma.control.diagnose.limits import Limit

pytestmark = pytest.mark.slow

PHONE = {"width": 360, "height": 740}
MANY = 1000
UNKNOWN = "\N{EN DASH}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def overflow(page: Watched) -> int:
    """How far it can be scrolled sideways."""
    found = page.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert isinstance(found, int)
    return found


def test_a_thousand_sessions_stay_fluid(browser: Browser) -> None:
    feed = FakeFeed(sessions=MANY, connections=3)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.wait("() => document.querySelectorAll('#sessions tr[data-id]').length > 5")
        page.page.evaluate(
            """() => {
                window.drawn = [];
                new MutationObserver(() => drawn.push(Number(document.body.dataset.frame)))
                    .observe(document.body, {attributeFilter: ["data-frame"]});
            }"""
        )
        sent = []
        rows = page.page.locator(".rows")
        for turn in range(20):
            feed.mapped_bytes += 65536
            sent.append(feed.push().number)
            rows.evaluate("(box, part) => box.scrollTop = part * box.scrollHeight", turn / 19)
            page.drawn(sent[-1])
            # What moves between frames would be laid out and painted for every picture.
            assert page.page.evaluate("document.getAnimations().length") == 0
        assert page.page.evaluate("drawn") == sent
        assert page.text("#sessions .count") == "1,000"
        there = page.page.locator("#sessions tbody tr[data-id]")
        assert there.count() < 40  # what can be seen, and some
        assert page.page.locator("#sessions table").get_attribute("aria-rowcount") == "1001"
        assert there.last.get_attribute("aria-rowindex") == "1001"


def test_sessions_are_sorted_and_filtered(browser: Browser) -> None:
    feed = FakeFeed(sessions=40, connections=2)
    frame = feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        first = page.page.locator("#sessions tbody tr[data-id]").first
        slowest = max(frame.snapshot.sessions, key=lambda one: (one.latency.p99_ns, one.id))
        page.page.get_by_role("button", name="p99").click()
        expect(page.page.get_by_role("columnheader", name="p99")).to_have_attribute(
            "aria-sort", "descending"
        )
        assert first.locator("td").nth(6).inner_text() == words.duration(slowest.latency.p99_ns)
        page.page.get_by_role("button", name="p99").click()
        fastest = min(frame.snapshot.sessions, key=lambda one: one.latency.p99_ns)
        expect(first).to_have_attribute("data-id", fastest.id)
        page.page.get_by_label("Filter").fill("connection 2")
        assert page.text("#sessions .count") == "20 of 40"
        page.page.get_by_label("Filter").fill(slowest.id[:8].upper())
        assert page.text("#sessions .count") == "1 of 40"
        page.page.get_by_label("Filter").fill("nothing like it")
        page.page.get_by_text("None of them matches the filter.").wait_for()


def test_a_session_is_asked_for_with_the_keyboard(browser: Browser) -> None:
    feed = FakeFeed(sessions=MANY)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        page.page.locator("#sessions tr[tabindex='0']").focus()
        page.page.keyboard.press("End")
        page.page.keyboard.press("ArrowUp")
        chosen = page.page.locator("#sessions tr:focus")
        expect(chosen).to_have_attribute("aria-rowindex", "1000")
        name = chosen.get_attribute("data-id")
        assert name is not None
        feed.push()
        page.drawn(2)
        expect(page.page.locator("#sessions tr:focus")).to_have_attribute("data-id", name)
        page.page.keyboard.press("Enter")
        dialog = page.page.get_by_role("dialog")
        dialog.get_by_text("requests wait 3.7 ms for DMA memory").wait_for()
        assert "slow: DMA memory" in dialog.inner_text()
        assert f"livedma why {name}" in dialog.inner_text()
        assert re.search(r"bandwidth\n[\d.]+ [kM]B/s", dialog.inner_text())
        page.page.keyboard.press("Escape")
        dialog.wait_for(state="hidden")
        expect(page.page.locator("#sessions tr:focus")).to_have_attribute("data-id", name)


def test_marks_and_time_lines_are_read_with_the_keyboard(browser: Browser) -> None:
    feed = FakeFeed()
    for _ in range(20):
        feed.push()
    feed.events.tell("plan", "extend: map 4 MiB more", connection=1)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(21)
        page.page.locator(".mark-of").focus()
        page.page.locator(".tip", has_text="extend: map 4 MiB more").wait_for()
        page.page.keyboard.press("Tab")
        expect(page.page.locator(".plots")).to_be_focused()
        page.page.keyboard.press("ArrowLeft")
        heard = re.compile(r"^\d\d:\d\d:\d\d: Bandwidth .* MB/s, p99 44 ms, Mapped memory 4 MiB$")
        page.page.get_by_text(heard).wait_for(state="attached")
        assert page.page.locator(".cursor").first.get_attribute("visibility") == "visible"
        page.page.keyboard.press("Escape")
        assert page.page.locator(".cursor").first.get_attribute("visibility") == "hidden"


def test_a_decision_is_there_at_once(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.page.get_by_text("Nothing has had to be decided yet.").wait_for()
        feed.events.tell("done", "mapped <b>4 MiB</b>", connection=1, dry=True)
        page.page.get_by_text("mapped <b>4 MiB</b> (dry run)").wait_for()  # as text, not as markup
        assert page.page.locator("#decisions b b, #decisions p b").count() == 0


def test_it_says_when_the_stream_ends_and_goes_on_by_itself(browser: Browser) -> None:
    feed = FakeFeed()
    for _ in range(3):
        feed.push()
    lost = ("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE")
    with shown(feed) as server:
        port = urlsplit(server.address).port or 0
        context = browser.new_context()
        page = Watched(context.new_page())
        page.page.goto(server.address)
        page.drawn(3)
        expect(page.page.locator("#live")).to_have_text("live")
        expect(page.page.locator("#old")).to_be_hidden()
    expect(page.page.locator("#live")).to_have_text("connection lost, trying again")
    expect(page.page.locator("#old")).to_contain_text("is lost; it is tried again by itself")
    expect(page.page.locator("#old")).to_contain_text(re.compile(r"of \d\d:\d\d:\d\d, \d+ s ago"))
    other = FakeFeed(sessions=5)  # another server, whose numbers begin anew
    other.push()
    with shown(other, port):
        expect(page.page.locator("#live")).to_have_text("live", timeout=30_000)
        expect(page.page.locator("#old")).to_be_hidden()
        expect(page.page.locator("#sessions .count")).to_have_text("5")
    assert all(any(part in one for part in lost) for one in page.complaints)
    context.close()


def test_it_says_that_nothing_new_comes(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        expect(page.page.locator("#live")).to_have_text("no news", timeout=30_000)
        expect(page.page.locator("#old")).to_contain_text("The server sends nothing")
        feed.push()
        expect(page.page.locator("#live")).to_have_text("live")


def test_what_nobody_knows_is_a_dash(browser: Browser) -> None:
    feed = FakeFeed(sessions=2)
    frame = feed.push()
    snapshot = frame.snapshot
    idle = replace(
        snapshot.sessions[0], inside=None, latency=replace(snapshot.sessions[0].latency, count=0)
    )
    feed.frame = replace(
        frame,
        number=2,
        diagnoses=(),
        windows=(),
        snapshot=replace(
            snapshot,
            connections=tuple(replace(one, inside=None) for one in snapshot.connections),
            sessions=(idle,),
            host=replace(snapshot.host, cpu_busy=None, mapped_bytes=None),
        ),
    )
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(2)
        assert page.text(".connection .chip") == "not known yet"
        assert page.text(".meter:has([aria-label=Memory]) .text") == UNKNOWN
        cells = page.page.locator("#sessions tr[data-id] td").all_inner_texts()
        assert [cells[place] for place in (5, 6, 7, 8)] == [UNKNOWN] * 4
        assert f"Device thread\n{UNKNOWN}" in page.text("#facts")
        assert page.page.locator("[data-act=extend]").is_disabled()
        expect(page.page.locator("#window")).to_be_hidden()


def test_it_fits_a_phone(browser: Browser) -> None:
    feed = FakeFeed(sessions=MANY, connections=4, limit=Limit.PEER)
    for _ in range(4):
        feed.push()
    feed.events.tell("why", "requests wait 3.7 ms for DMA memory " * 4, connection=1)
    with (
        shown(feed) as server,
        looking(browser, server.address, viewport=PHONE, has_touch=True, is_mobile=True) as page,
    ):
        page.drawn(4)
        assert overflow(page) <= 0
        page.page.locator(".mark-of").tap()
        page.page.locator(".tip").wait_for()
        assert overflow(page) <= 0
        page.page.locator("[data-act=extend]:visible").tap()
        box = page.page.get_by_role("dialog").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
        assert overflow(page) <= 0


def test_no_figure_is_cut_off_at_any_width(browser: Browser) -> None:
    feed = FakeFeed(sessions=40)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        for width in (360, 720, 1024, 1280, 1440, 2560):
            page.page.set_viewport_size({"width": width, "height": 900})
            found = page.page.evaluate(
                """() => {
                    const cells = [...document.querySelectorAll(".rows :is(th, td)")];
                    const cut = cells.filter((one) => one.scrollWidth > one.clientWidth);
                    for (const one of document.querySelectorAll(".card .text, .card dd, .card p")) {
                        const room = one.closest(".card").getBoundingClientRect().right;
                        if (one.getBoundingClientRect().right > room) cut.push(one);
                    }
                    const spark = document.querySelector(".spark").getBoundingClientRect();
                    return [cut.map((one) => one.innerText), spark.width > 40];
                }"""
            )
            assert (width, found) == (width, [[], True])
            page.wait("() => document.documentElement.scrollWidth <= innerWidth")


def test_light_and_dark_are_chosen_and_kept(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address, color_scheme="dark") as page:

        def paper() -> str:
            found = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert isinstance(found, str)
            return found

        dark = paper()
        page.page.get_by_role("button", name="Theme: auto").click()
        page.page.get_by_role("button", name="Theme: light").wait_for()
        light = paper()
        assert light != dark
        page.page.reload()
        page.page.get_by_role("button", name="Theme: light").click()
        page.page.get_by_role("button", name="Theme: dark").wait_for()
        assert paper() == dark
        page.page.emulate_media(color_scheme="light")
        assert paper() == dark
        page.page.emulate_media(media="print")
        assert paper() == light


def test_nothing_is_sent_without_a_token(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.page.locator("[data-act=shrink]").click()
        page.page.get_by_label("in MiB").fill("1")
        page.page.get_by_role("button", name="Give 1 MiB back").click()
        page.page.get_by_text("A change needs the server's token.").wait_for()
        page.page.get_by_label("in MiB").fill("900")
        expect(page.page.locator("#ask [type=submit]")).to_be_disabled()
        page.page.get_by_label("in MiB").fill("1")
        page.page.get_by_label("Token", exact=True).fill(TOKEN)
        page.page.keyboard.press("Enter")
        page.page.get_by_role("dialog").wait_for(state="hidden")
        assert server.done == [("shrink", 1, 1 << 20)]


def test_a_question_has_the_figures_of_now(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.page.locator("[data-act=extend]").click()
        dialog = page.page.get_by_role("dialog")
        dialog.get_by_text("4 MiB of 16 MiB have it now").wait_for()
        feed.mapped_bytes *= 2
        feed.push()
        dialog.get_by_text("8 MiB of 16 MiB have it now").wait_for()
        feed.connections = 0
        feed.push()
        dialog.get_by_text("The connection has ended.").wait_for()
        expect(page.page.locator("#ask [type=submit]")).to_be_disabled()


def test_a_connection_is_chosen(browser: Browser) -> None:
    feed = FakeFeed(connections=3)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.page.get_by_role("button", name="Connection 2", exact=True).press("Enter")
        expect(page.page.locator("#lines-title")).to_have_text("Time lines of connection 2")
        expect(page.page.locator("#window-title")).to_have_text("Window of connection 2")
        feed.push()
        page.drawn(2)
        expect(page.page.locator("#lines-title")).to_have_text("Time lines of connection 2")


def test_without_scripts_it_says_what_else_there_is(browser: Browser) -> None:
    with (
        shown(FakeFeed()) as server,
        looking(browser, server.address, java_script_enabled=False) as page,
    ):
        assert "livedma top shows the same in a terminal" in page.text("body")


def test_figures_are_said_as_the_server_says_them(browser: Browser) -> None:
    values = [0, 1, 999, 1000, 1023, 1024, 1536, 65536, 123456, 4.6e6, 1 << 24, 2.5e9, 1 << 33]
    feed = FakeFeed()
    with shown(feed) as server, looking(browser, server.address) as page:
        found = page.page.evaluate(
            """async (values) => {
                const words = await import("/static/words.js");
                return values.map((one) => [words.size(one), words.rate(one), words.duration(one)]);
            }""",
            values,
        )
    assert found == [[words.size(one), words.rate(one), words.duration(one)] for one in values]
