# SPDX-License-Identifier: BSD-2-Clause
"""What the page shows of what is slow, of all connections together, and of what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, expect
from tests.ui.browser import Watched, chromium, looking
from tests.ui.fake_server import FakeFeed, shown

from livedma.control import words
from livedma.control.show.frame import Frame

pytestmark = pytest.mark.slow

MS = 1_000_000
UNKNOWN = "\N{EN DASH}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def with_evidence(frame: Frame, **evidence: float) -> Frame:
    """The frame, with these figures behind each diagnosis; its first three sessions take 1, 2 and 5
    times 20 ms, and wait for nothing, 8 ms and 40 ms.
    """
    diagnoses = tuple(replace(one, evidence=evidence) for one in frame.diagnoses)
    sessions = []
    for one, times, wait_ms in zip(frame.snapshot.sessions, (1, 2, 5), (0, 8, 40), strict=True):
        assert one.inside is not None
        latency = replace(one.latency, p50_ns=20 * MS, p99_ns=times * 20 * MS)
        inside = replace(one.inside, memory_waited_ns=wait_ms * MS * one.operations)
        sessions.append(replace(one, latency=latency, inside=inside))
    snapshot = replace(frame.snapshot, sessions=tuple(sessions))
    return replace(frame, number=frame.number + 1, diagnoses=diagnoses, snapshot=snapshot)


def levels(page: Watched, key: str) -> list[str | None]:
    """Of a column's cells, in the order of the sessions' ids."""
    found = page.page.evaluate(
        """key => [...document.querySelectorAll("#sessions tr[data-id]")]
            .sort((a, b) => (a.dataset.id < b.dataset.id ? -1 : 1))
            .map((row) => row.querySelector(`td[data-key=${key}]`).dataset.level ?? null)""",
        key,
    )
    assert isinstance(found, list)
    return found


def in_order(frame: Frame, values: list[str | None]) -> list[str | None]:
    ids = [one.id for one in frame.snapshot.sessions]
    return [value for _, value in sorted(zip(ids, values, strict=True))]


def test_times_are_amber_and_red_by_what_is_usual(browser: Browser) -> None:
    feed = FakeFeed(sessions=3)
    frame = feed.frame = with_evidence(feed.push(), usual_p99_ms=20.0)
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(2)
        assert levels(page, "p99") == in_order(frame, [None, "slow", "very"])
        assert levels(page, "p50") == [None, None, None]
        assert levels(page, "wait") == in_order(frame, [None, "slow", "very"])
        # Not by colour alone: each has its sign, which screen readers say as a word.
        signs = page.page.evaluate(
            """() => ["slow", "very"].map((level) => getComputedStyle(
                document.querySelector(`td[data-level=${level}]`), "::before").content)"""
        )
        assert "▲" in signs[0] and "slow" in signs[0]
        assert "◆" in signs[1] and "very slow" in signs[1]
        assert page.page.locator(".spark path[data-level=slow]").count() == 1
        assert page.page.locator(".spark path[data-level=very]").count() == 1
        legend = page.text(".legend.levels")
        assert "the usual p99 of its connection" in legend and "over 3 " in legend


def test_an_objective_comes_before_what_is_usual(browser: Browser) -> None:
    feed = FakeFeed(sessions=3)
    frame = feed.frame = with_evidence(feed.push(), usual_p99_ms=20.0, wanted_p99_ms=45.0)
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(2)
        assert levels(page, "p99") == in_order(frame, [None, "slow", "very"])
        assert "over the objective, 45 ms" in page.text(".legend.levels")
        expect(page.page.locator(".chart .bound").nth(1)).to_have_attribute("visibility", "visible")


def test_without_anything_to_compare_with_nothing_is_called_slow(browser: Browser) -> None:
    feed = FakeFeed(sessions=3)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        assert page.page.locator("#sessions [data-id] [data-level]").count() == 0


def test_signs_cut_nothing_off(browser: Browser) -> None:
    feed = FakeFeed(sessions=3)
    feed.frame = with_evidence(feed.push(), usual_p99_ms=2.0)
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(2)
        for width in (360, 720, 1024, 1440):
            page.page.set_viewport_size({"width": width, "height": 900})
            cut = page.page.evaluate(
                """() => [...document.querySelectorAll(":is(td, dd)[data-level]")]
                    .filter((one) => one.scrollWidth > one.clientWidth)
                    .map((one) => one.innerText)"""
            )
            assert (width, cut) == (width, [])


def test_what_all_connections_do_together(browser: Browser) -> None:
    feed = FakeFeed(sessions=12, connections=3)
    snapshot = feed.push().snapshot
    sent = sum(one.read_bytes + one.written_bytes for one in snapshot.connections)
    operations = sum(one.operations for one in snapshot.connections)
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        rate = words.rate(sent / snapshot.interval_s)
        assert page.text("[data-fact=total] dd") == f"{rate}, {operations * 2:,} op/s"
        assert page.text("[data-fact=sessions] dd") == "12"
        assert page.text("#connections-count") == "3, 3 slow"


def test_a_line_of_a_connection_that_has_ended_says_so(browser: Browser) -> None:
    feed = FakeFeed(connections=2)
    for _ in range(4):
        feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(4)
        assert page.text(".of-lines").split("\n") == ["1 10.80.0.2 qp 18", "2 10.80.0.3 qp 18"]
        feed.connections = 1
        feed.push()
        page.drawn(5)
        assert page.text(".of-lines").split("\n") == [
            "1 10.80.0.2 qp 18",
            "2 10.80.0.3 qp 18, ended",
        ]
        assert page.page.locator(".chart .line[data-ended]").count() == 3  # one a chart


def test_one_connection_needs_no_legend(browser: Browser) -> None:
    feed = FakeFeed()
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        expect(page.page.locator(".of-lines")).to_be_hidden()


def test_boxes_that_scroll_show_it(browser: Browser) -> None:
    feed = FakeFeed(sessions=40, connections=9)
    feed.push()
    size = {"width": 1280, "height": 900}
    with shown(feed) as server, looking(browser, server.address, viewport=size) as page:
        page.drawn(1)
        for selector in ("#connections", ".rows"):
            box = page.page.locator(selector)
            expect(box).to_have_attribute("data-below", "")
            assert "gradient" in box.evaluate("one => getComputedStyle(one).maskImage")
            box.evaluate("one => one.scrollTop = one.scrollHeight")
            expect(box).not_to_have_attribute("data-below", "")
            expect(box).to_have_attribute("data-above", "")
        feed.connections = 1
        feed.push()
        page.drawn(2)
        expect(page.page.locator("#connections")).not_to_have_attribute("data-above", "")


def test_a_connection_over_tcp_shows_no_memory(browser: Browser) -> None:
    """As frames have it: no window, no credits, so nothing to extend; and where it comes from."""
    feed = FakeFeed(sessions=0)
    feed.push()
    with shown(feed) as server, looking(browser, server.address) as page:
        page.drawn(1)
        found = page.page.evaluate(
            """async () => {
                const { Connections } = await import("/static/connections.js");
                const root = document.createElement("div");
                const one = {
                    number: 7, client: "fd00::7", client_port: 913, client_name: "host-a",
                    transport: "tcp", sessions: null, operations: 20, read_bytes: 1e6,
                    written_bytes: 0, latency: null, in_flight: null, credits_asked: null,
                    credits_granted: null, inside: null,
                };
                const frame = { snapshot: { connections: [one], interval_s: 0.5 } };
                new Connections(root, () => {}, () => {}).draw(
                    { frame, diagnosis: () => null }, 7);
                document.body.append(root);
                const all = (selector) =>
                    [...root.querySelectorAll(selector)].map((one) => one.textContent);
                const isSeen = (selector) => root.querySelector(selector).checkVisibility();
                return [all(".client"), all("dd"), isSeen(".meters"), isSeen(".acts")];
            }"""
        )
    who, figures, *managed = found
    assert who == ["TCP client [fd00::7]:913 (host-a)"]
    assert figures == ["2 MB/s", UNKNOWN, UNKNOWN, "40/s", UNKNOWN, UNKNOWN]
    assert managed == [False, False]
