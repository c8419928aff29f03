# SPDX-License-Identifier: BSD-2-Clause
"""Bars, sparklines, charts and text that has to fit: what pictures are made of."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ui.made_frames import EVENTS, connection, fine, frame, many, window

from livedma.control.diagnose.room import SessionRoom
from livedma.control.show.frame import Frame
from livedma.ui.top.columns import COLUMNS, place
from livedma.ui.top.connections import connections
from livedma.ui.top.glyphs import ASCII, UNICODE, fit, fitting, printable, width_of, wrap
from livedma.ui.top.model import Model, Moment, buckets
from livedma.ui.top.picture import as_text, cells, cut, figure, rule, spread
from livedma.ui.top.plain import plain
from livedma.ui.top.sessions import Sessions

_PARTS = st.integers(0, 1 << 40)


@given(_PARTS, _PARTS, _PARTS, st.integers(0, 200))
def test_a_bar_has_its_cells_and_hides_nothing(one: int, two: int, three: int, room: int) -> None:
    leased, mapped, whole = sorted((one, two, three))
    parts = UNICODE.bar(leased, mapped, whole, room)
    assert sum(map(len, parts)) == (room if whole else 0)
    if room > 3 and whole:
        assert bool(parts[0]) is (leased > 0) or mapped == leased
        assert bool(parts[0] + parts[1]) is (mapped > 0)
        assert bool(parts[1]) or mapped == leased or len(parts[0]) == 1


def test_a_bar() -> None:
    assert ASCII.bar(4, 8, 16, 8) == ("##", "==", "....")
    assert ASCII.bar(0, 16, 16, 4) == ("", "====", "")
    assert ASCII.bar(1, 1000, 100_000, 4) == ("#", "", "...")


_VALUES = st.lists(st.none() | st.floats(0, 1e12), max_size=80)


@given(_VALUES, st.integers(1, 8), st.sampled_from([UNICODE, ASCII]))
def test_a_chart_has_a_column_for_each_value(
    values: list[float | None], height: int, glyphs: object
) -> None:
    assert glyphs in (UNICODE, ASCII)
    lines = (UNICODE if glyphs is UNICODE else ASCII).chart(values, height)
    assert len(lines) == height and {len(line) for line in lines} == {len(values)}
    for index, value in enumerate(values):
        assert (value is None) is (lines[-1][index] == " ")


def test_a_sparkline_goes_from_nothing_to_the_most() -> None:
    assert UNICODE.sparkline([0, 1, 3, None, 5, 6]) == "▁▂▄ ▆▇"
    assert UNICODE.sparkline([0, 0]) == "▁▁" and UNICODE.sparkline([]) == ""
    assert ASCII.sparkline([0, 2, 4]) == "_-*"
    assert UNICODE.chart([8, 4, 0], 2) == ["█  ", "██▁"]


_TEXT = st.text(st.sampled_from("ab 日\u0301x"), max_size=60)


@given(_TEXT, st.integers(0, 40))
def test_text_that_is_cut_fits_and_says_so(text: str, width: int) -> None:
    found = fit(text, width, UNICODE)
    assert width_of(found) <= width
    assert found == text or not found or found.endswith("…")


@given(_TEXT, st.integers(1, 40), st.integers(1, 5))
def test_lines_fit_and_have_all_words(text: str, width: int, lines: int) -> None:
    found = wrap(text, width, lines, UNICODE)
    assert len(found) <= lines and all(width_of(line) <= width for line in found)
    if not any("…" in line for line in found):
        assert " ".join(found).split() == text.split()


@given(_TEXT, _TEXT, st.integers(0, 60))
def test_lines_are_never_wider_than_the_terminal(left: str, right: str, width: int) -> None:
    assert cells(spread(((left, ""),), ((right, "bad"),), width, UNICODE)) <= width
    assert cells(cut(((left, ""), (right, "")), width, UNICODE)) <= width
    assert cells(rule(left, right, width, UNICODE)) <= width


def test_what_acts_on_a_terminal_is_not_printed() -> None:
    assert printable("a\x1b[31m\r\n\x9b\u202eb", UNICODE) == "a?[31m????b"
    assert printable("日本", UNICODE) == "日本" and printable("日本", ASCII) == "??"


@pytest.mark.parametrize(
    ("environ", "glyphs"),
    [
        ({}, ASCII),
        ({"LANG": "C"}, ASCII),
        ({"LANG": "C.UTF-8"}, UNICODE),
        ({"LANG": "de_DE.utf8"}, UNICODE),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, ASCII),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, UNICODE),
        ({"LANG": "en_US.ISO-8859-1"}, ASCII),
    ],
)
def test_the_locale_says_what_can_be_shown(environ: dict[str, str], glyphs: object) -> None:
    assert fitting(environ) is glyphs


def test_what_python_makes_of_the_c_locale_is_still_c(monkeypatch: pytest.MonkeyPatch) -> None:
    coerced = {"LC_CTYPE": "C.UTF-8"}

    class Flags:
        utf8_mode = 1

    monkeypatch.setattr(sys, "flags", Flags)
    assert fitting(coerced) is ASCII
    Flags.utf8_mode = 0
    assert fitting(coerced) is UNICODE


def test_figures() -> None:
    assert figure(None, "count", UNICODE) == "\N{EN DASH}" and figure(None, "time", ASCII) == "-"
    assert figure(0, "rate", UNICODE) == "0" and figure(1234.5, "count", UNICODE) == "1,234"
    assert figure(2.5e6, "time", UNICODE) == "2.5 ms"


def _moments(*pairs: tuple[float, float]) -> list[Moment]:
    return [Moment(at_s, 0, value, None, None) for at_s, value in pairs]


def test_a_minute_in_parts_that_stand_still() -> None:
    past = _moments((1000.0, 2), (1005.0, 4), (1010.0, 10), (1059.0, 6), (900.0, 99))
    seen = buckets(past, 1059.0, 6, lambda one: one.bytes_per_s)
    assert seen == [3, 10, None, None, None, 6]
    assert buckets(past, 1059.9, 6, lambda one: one.bytes_per_s) == seen
    assert buckets(past, 1060.0, 6, lambda one: one.bytes_per_s) == [10, None, None, None, 6, None]


@pytest.mark.parametrize("width", [20, 60, 79, 80, 100, 120, 160, 200, 400])
def test_columns_do_not_overlap_and_the_important_ones_are_always_there(width: int) -> None:
    placed, graph = place(width)
    ends = [one.begin + one.width for one in placed]
    assert all(end < after.begin for end, after in zip(ends, placed[1:], strict=False))
    if width >= 80:
        names = {one.column.name for one in placed}
        assert {one.name for one in COLUMNS if not one.rank} <= names
        assert ends[-1] < graph <= width - 9


def test_a_session_that_is_gone_is_forgotten_after_a_minute() -> None:
    model = Model()
    model.take(many(1, 50))
    model.take(frame(2))
    gone = many(1, 50).snapshot.sessions[40].id
    assert len(model.past(gone)) == 1
    model.take(frame(121))
    assert len(model.past(gone)) == 1
    model.take(frame(124))
    assert not model.past(gone)


def test_the_picture_as_text_has_all_of_it() -> None:
    model = Model()
    for item in (*EVENTS, many(1, 300)):
        model.take(item)
    text = plain(model, Sessions(model), 100, ASCII)
    assert text.isascii() and all(len(line) <= 100 for line in text.splitlines())
    assert all(f" {number:04x}c0ff" in text for number in range(300))
    assert text.count("slow, limited by DMA memory") == 1 and "13.1 MiB -> 14.1 MiB" in text
    assert as_text(()) == ""


def test_the_room_for_more_sessions_stands_behind_the_diagnosis() -> None:
    words = "room for 4 to 7 more sessions like these (40 of 56 buffers at the busiest)"
    roomy = replace(fine(), room=SessionRoom(4, 7, 50, 60, words))
    lines = connections(frame(diagnoses=(roomy,)), 80, 20, UNICODE)
    assert words in " ".join(" ".join(map(as_text, lines)).split())
    short = connections(frame(diagnoses=(roomy,)), 160, 20, UNICODE)
    assert as_text(short[-1]).endswith("; room for 4 to 7 more sessions like these")


def test_a_frame_comes_back_with_its_room() -> None:
    room = SessionRoom(4, 7, 50, 60, "room for 4 to 7 more sessions")
    made = frame(diagnoses=(replace(fine(), room=room), fine(2)))
    found = made.as_json()
    assert found["diagnoses"][0]["room"]["sentence"] == room.sentence
    assert Frame.from_json(found) == made


@pytest.mark.parametrize("width", [40, 72, 80, 100, 131, 132, 200])
@pytest.mark.parametrize("host", ["10.80.114.78", "fd00:80:1:2::4e"])
@pytest.mark.parametrize("height", [3, 20])
def test_clients_of_one_host_are_told_apart_by_their_ports(
    host: str, width: int, height: int
) -> None:
    ports = (50228, 50230)
    both = tuple(
        replace(connection(number), client=host, client_port=port)
        for number, port in enumerate(ports, 1)
    )
    made = frame(connections=both, diagnoses=(fine(1), fine(2)), windows=(window(1), window(2)))
    for glyphs in (UNICODE, ASCII):
        shown = "\n".join(map(as_text, connections(made, width, height, glyphs)))
        assert all(f":{port} " in shown for port in ports), shown
        if width >= 80 and "." in host and height > 3:
            assert f"{host}:{ports[0]} " in shown
