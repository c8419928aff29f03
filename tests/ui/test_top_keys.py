# SPDX-License-Identifier: BSD-2-Clause
"""What keys and the mouse do in top."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ui.made_frames import EVENTS, MS, event, frame, many, restarted, session
from tests.ui.terminal import Terminal, shown

from livedma.errors import LivedmaError
from livedma.ui.feeds import Lost
from livedma.ui.top.columns import COLUMNS
from livedma.ui.top.screens import HelpScreen, SessionScreen

# By bandwidth: 3, 1, 2; each other order is another one.
THREE = (
    session(1, operations=20, connections=(3,), wait_ns=MS),
    session(2, operations=10, connections=(1,), wait_ns=9 * MS),
    session(3, operations=30, connections=(2,), wait_ns=0),
)


def test_each_column_sorts_by_its_key_and_again_the_other_way() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        assert it.rows() == ["0003", "0001", "0002"]
        for key, order in (
            ("o", ["0003", "0001", "0002"]),
            ("w", ["0002", "0001", "0003"]),
            ("i", ["0001", "0002", "0003"]),
            ("c", ["0002", "0003", "0001"]),
            ("p", ["0003", "0002", "0001"]),
            ("m", ["0003", "0002", "0001"]),
        ):
            await it.press(key)
            assert it.rows() == order, key
            title = next(one.title for one in COLUMNS if one.key == key)
            assert f"by {title} " in it.text
            await it.press(key)
            assert it.rows() == order[::-1], key

    shown(run)


def test_keys_of_columns_are_different() -> None:
    keys = [one.key for one in COLUMNS]
    assert len({*keys, "q", "r", "g", "j", "k"}) == len(keys) + 5


def test_the_column_beside_sorts() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        assert "by bandwidth ▼" in it.text
        await it.press("less_than_sign")
        assert "by op/s ▼" in it.text
        await it.press("greater_than_sign", "greater_than_sign")
        assert "by read ▼" in it.text
        await it.press("r")
        assert "by read ▲" in it.text and it.rows() == ["0002", "0001", "0003"]

    shown(run)


def test_a_click_on_a_title_sorts_and_one_on_a_row_chooses() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        assert it.pilot is not None
        head = next(n for n, line in enumerate(it.lines) if line.startswith(" session "))
        await it.pilot.click(offset=(it.lines[head].index("waits") + 1, head))
        await it.settle()
        assert it.rows() == ["0002", "0001", "0003"]
        await it.pilot.click(offset=(3, head + 2))
        await it.settle()
        assert it.lines[head + 2].startswith(">0001")
        await it.pilot.click(offset=(3, head + 3), times=2)
        await it.settle()
        assert isinstance(it.app.screen, SessionScreen) and "0003c0ffee" in it.text

    shown(run)


def test_what_nobody_knows_comes_last_whichever_way() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=(session(1, operations=0), session(2), session(3))))
        await it.press("p")
        assert it.rows() == ["0003", "0002", "0001"]
        await it.press("p")
        assert it.rows() == ["0002", "0003", "0001"]

    shown(run)


def test_rows_stay_where_they_are_for_a_while() -> None:
    async def run(it: Terminal) -> None:
        first = (session(1, operations=30), session(2, operations=20))
        after = (session(1, operations=20), session(2, operations=30))
        await it.feed(frame(1, sessions=first))
        assert it.rows() == ["0001", "0002"]
        await it.feed(frame(2, sessions=after))
        assert it.rows() == ["0001", "0002"]
        await it.feed(frame(3, sessions=(*after, session(3, operations=40))))
        assert it.rows() == ["0001", "0002", "0003"]
        await it.feed(frame(4, sessions=after[1:]))
        assert it.rows() == ["0002"]
        await it.feed(frame(5, sessions=after))
        assert it.rows() == ["0002", "0001"]

    shown(run)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("0002", ["0002"]),
        ("c3", ["0001"]),
        ("10.80.0.2", ["0002"]),  # the client of connection 1
        ("waits", ["0001", "0002"]),
        ("idle", []),
        ("busy 0003", ["0003"]),
        ("C3 BEEF", ["0001"]),
        ("0002 0003", []),
    ],
)
def test_a_filter_while_it_is_written(text: str, rows: list[str]) -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        await it.press("slash")
        await it.press(*("space" if one == " " else one for one in text))
        assert it.rows() == rows
        assert f"{len(rows)} of 3 sessions" in it.text
        assert it.app.model.paused_since_s is None
        if not rows:
            assert "no session fits the filter" in it.text
        await it.press("enter")  # keeps it, and keys are keys again
        assert f"filter: {text}" in it.text
        await it.press("i")
        assert it.rows() == sorted(rows) and "by session" in it.text
        await it.press("escape")
        assert it.rows() == ["0001", "0002", "0003"] and "filter:" not in it.text

    shown(run)


def test_a_filter_that_is_left_shows_all() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        await it.press("slash", "0", "0", "0", "2", "escape")
        assert len(it.rows()) == 3 and "q quit" in it.text

    shown(run)


def test_a_picture_that_is_paused_stands_still_and_says_since_when() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(1, sessions=THREE), *EVENTS)
        await it.press("space")
        before = it.lines[1:]
        assert "PAUSED since" in it.lines[0]
        await it.tick(5)
        await it.feed(frame(2), event(9, "hand", "somebody did this"), Lost("gone", 1.0), frame(3))
        assert it.lines[1:] == before and ", 5 s" in it.lines[0]
        await it.press("i")  # but may be looked at
        assert it.rows() == ["0001", "0002", "0003"]
        await it.press("space")
        assert "PAUSED" not in it.text and "somebody did this" in it.text
        assert it.app.model.frame == frame(3)

    shown(run)


def test_down_and_up_choose_a_session_which_is_followed() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(many(1, 40))
        rows = it.rows()
        await it.press("down", "j")
        chosen = next(line for line in it.lines if line.startswith(">"))
        assert chosen[1:5] == rows[2]
        await it.feed(*(many(n, 40) for n in range(2, 8)))
        after = next(line for line in it.lines if line.startswith(">"))
        assert after[1:5] == chosen[1:5]
        await it.press("home")
        assert it.rows()[0] == next(line for line in it.lines if line.startswith(">"))[1:5]
        await it.press("end")
        assert "40 of 40" in it.text and it.rows()[-1] == _chosen(it)
        last = _chosen(it)
        await it.press("pageup", "k", "pagedown", "down", "down")
        assert _chosen(it) == last

    shown(run)


def _chosen(it: Terminal) -> str:
    return next(line for line in it.lines if line.startswith(">"))[1:5]


def test_a_chosen_session_that_ends_leaves_the_first_chosen() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(1, sessions=THREE))
        await it.press("down")
        assert _chosen(it) == "0001"
        await it.feed(frame(2, sessions=(THREE[1], THREE[2])))
        assert _chosen(it) == "0003"

    shown(run)


@pytest.mark.parametrize("back", ["escape", "q", "enter", "backspace"])
def test_enter_says_why_a_session_is_slow(back: str) -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(1, sessions=THREE[1:]), *EVENTS)
        await it.press("down", "enter")
        assert "session 0002c0ffee" in it.text and "connection 1 is slow" in it.text
        assert "20/s" not in it.text
        await it.feed(frame(2, sessions=(session(2, operations=77),)))
        assert "154" in it.text  # it is live
        await it.feed(frame(3, sessions=()))
        assert "it has ended" in it.text and "154" in it.text
        await it.press(back)
        assert it.app.screen is it.app.main and "no session yet" in it.text
        await it.press("enter")  # there is none
        assert it.app.screen is it.app.main

    shown(run)


@pytest.mark.parametrize("back", ["question_mark", "escape", "q"])
def test_help_is_there_from_everywhere_and_closes_as_it_opened(back: str) -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame())
        await it.press("enter", "question_mark")
        assert isinstance(it.app.screen, HelpScreen)
        await it.press(back)
        assert isinstance(it.app.screen, SessionScreen)

    shown(run)


def test_help_names_every_column_and_its_key() -> None:
    async def run(it: Terminal) -> None:
        await it.press("question_mark")
        assert all(f"{one.key} {one.title}" in it.text for one in COLUMNS)

    shown(run)


def test_the_graph_changes() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        for title in ("op/s, 1 min", "p99, 1 min", "  waits", "  bandwidth"):
            await it.press("g")
            head = next(line for line in it.lines if line.startswith(" session"))
            assert head.endswith(title)

    shown(run)


def test_decisions_scroll_back_and_come_to_the_newest() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(), *(event(n, "hand", f"number {n}") for n in range(1, 51)))
        assert "number 50" in it.text
        await it.press("tab", "up", "up")
        assert "number 48" in it.text and "number 50" not in it.text and "2 lines back" in it.text
        await it.press("pageup")
        assert "number 43" in it.text
        await it.press("home")
        assert "number 1\n" in it.text + "\n"
        await it.press("end")
        assert "number 50" in it.text

    shown(run)


def test_another_server_at_the_same_place_begins_anew() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(*EVENTS, *(frame(n) for n in range(1, 30)), Lost("it has ended", 1.0))
        assert "NO SERVER" in it.text and "it has ended: trying again" in it.text
        await it.feed(event(1, "hand", "a new one"), restarted(frame(1)))
        assert "live" in it.lines[0] and "a new one" in it.text and "13.1 MiB" not in it.text
        assert len(it.app.model.past(frame(1).snapshot.sessions[0].id)) == 1

    shown(run)


def test_a_server_that_says_nothing_is_noticed() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame())
        await it.tick(2)
        assert "live" in it.lines[0]
        await it.tick(5)
        assert "NO ANSWER for 7 s" in it.lines[0]

    shown(run)


@pytest.mark.parametrize("key", ["q", "ctrl+c"])
def test_it_is_left(key: str) -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame())
        assert it.pilot is not None
        await it.pilot.press(key)
        await it.pilot.pause()
        assert not it.app.is_running

    shown(run)


def test_whoever_names_things_cannot_act_on_the_terminal() -> None:
    async def run(it: Terminal) -> None:
        bad = replace(session(1), id="\x1b[2J\x07" + "a" * 30)
        await it.feed(
            event(1, "hand", "\x1b]0;owned\x07 日本語"),
            replace(frame(sessions=(bad,)), server="/srv/\x1b[31m日本語"),
            Lost("\x9b31m gone", 1.0),
        )
        assert "?[2J?" in it.text and "/srv/?[31m日本語" in it.text and "?31m gone" in it.text
        assert not any(ord(one) < 32 or 127 <= ord(one) < 160 for one in it.text.replace("\n", ""))
        await it.press("enter")
        assert "\x1b" not in it.text

    shown(run, (120, 30))


@pytest.mark.slow
def test_any_size_is_drawn() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(many(1, 30), *EVENTS)
        assert it.pilot is not None
        for size in ((200, 60), (80, 24), (40, 10), (20, 5), (5, 3), (300, 100), (80, 24)):
            await it.pilot.resize_terminal(*size)
            await it.press("enter")
            await it.press("escape")
            assert len(it.lines) == size[1]
        assert it.lines[-1].endswith("q quit")

    shown(run)


class Asked:
    """As a server: notes what it is asked for, and refuses what is large."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, int]] = []

    async def __call__(self, lever: str, connection: int, length: int) -> str:
        if length > 8 << 20:
            raise LivedmaError("it would exceed the budget")
        self.done.append((lever, connection, length))
        return "mapped 4 MiB -> 6 MiB"


def test_plus_and_minus_extend_and_shrink_the_connection_of_the_chosen_session() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        await it.press("plus", "2", "m", "i", "b", "enter")
        assert asked.done == [("extend", 2, 2 << 20)]  # of session 3, the first row
        assert it.lines[-1] == " extend, connection 2: mapped 4 MiB -> 6 MiB"
        await it.press("down", "minus", "4", "k", "enter")
        assert asked.done[1:] == [("shrink", 3, 4096)]
        await it.press("plus", "1", "g", "enter")
        assert it.lines[-1] == " extend: it would exceed the budget"
        assert it.rows() == ["0003", "0001", "0002"]  # an order is no filter

    asked = Asked()
    shown(run, act=asked)


@pytest.mark.parametrize("text", ["", "x", "0", "2mib2", "-5", "5 parsecs"])
def test_an_order_that_makes_no_sense_is_not_given(text: str) -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        await it.press("plus", *("space" if one == " " else one for one in text), "enter")
        assert "write a connection's number and how much: 1 4MiB" in it.lines[-1]
        await it.press("plus", "1", "escape")
        assert not asked.done

    asked = Asked()
    shown(run, act=asked)


def test_from_afar_there_are_no_levers() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=THREE))
        await it.press("plus")
        assert "a server afar has its levers on its page" in it.lines[-1]

    shown(run)
