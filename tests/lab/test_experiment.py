# SPDX-License-Identifier: BSD-2-Clause
"""The framework of experiments, on a small one: runs, answers, data, plots and the page."""

from __future__ import annotations

import os
import re
import struct
import zlib
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny_experiment import Endless, Levels, Tiny, Troubled, made_up

from livedma.lab.experiment import data
from livedma.lab.experiment.design import Column, Point
from livedma.lab.experiment.host import describe_host
from livedma.lab.experiment.quantities import quantity
from livedma.lab.experiment.report import Report
from livedma.lab.experiment.results import about, write
from livedma.lab.experiment.runner import measure
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.summary import as_text

pytestmark = pytest.mark.slow  # many processes

SVG = "{http://www.w3.org/2000/svg}"


def silent(*_: object) -> None:
    pass


def of_turns(turns: int) -> Runs:
    once = [row for row in made_up(3, 1) if not row.repetition]
    return Runs([replace(row, repetition=turn) for turn in range(turns) for row in once])


def report(runs: Runs) -> Report:
    return Report(Tiny(), "quick", 1, runs, 1.0, {"processor": "fast & small"})


@pytest.fixture(scope="module")
def measured() -> Runs:
    runs, seconds = measure(Tiny(), "quick", silent)
    assert seconds > 0
    return runs


@pytest.fixture(scope="module")
def troubled() -> Runs:
    return measure(Troubled(), "quick", silent)[0]


@pytest.fixture(scope="module")
def levels() -> Runs:
    return measure(Levels(), "quick", silent)[0]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    write(report(made_up(2, 1)), tmp_path)
    return tmp_path


class TestRunning:
    def test_every_point_is_measured_in_every_turn(self, measured: Runs) -> None:
        tiny = Tiny()
        assert measured.points() == tiny.points("quick")
        assert len(measured.rows) == len(tiny.points("quick")) * tiny.repetitions("quick")
        assert not measured.failures

    def test_every_run_has_a_process_of_its_own(self, measured: Runs) -> None:
        pids = measured.values("pid")
        assert len(set(pids)) == len(measured.rows)
        assert os.getpid() not in pids

    def test_points_take_turns(self, measured: Runs) -> None:
        """Each turn is over before the next begins, and has another order."""
        by_order = sorted(measured, key=lambda row: row.order)
        points = len(measured.points())
        turns = [by_order[i : i + points] for i in range(0, len(by_order), points)]
        for number, turn in enumerate(turns):
            assert {row.repetition for row in turn} == {number}
        assert len({tuple(str(row.point) for row in turn) for turn in turns}) > 1

    def test_the_order_depends_on_the_seed_alone(self, measured: Runs) -> None:
        def order(runs: Runs) -> list[Point]:
            return [row.point for row in sorted(runs, key=lambda row: row.order)]

        assert order(measure(Tiny(), "quick", silent)[0]) == order(measured)
        assert order(measure(Tiny(), "quick", silent, seed=2)[0]) != order(measured)

    def test_progress_counts_up_and_says_what_is_next(self) -> None:
        seen: list[tuple[int, int, float | None, Point]] = []
        measure(Tiny(), "quick", lambda *told: seen.append(told))
        assert [done for done, _, _, _ in seen] == list(range(16))
        assert {total for _, total, _, _ in seen} == {16}
        assert seen[0][2] is None
        assert all(left is not None and left > 0 for _, _, left, _ in seen[1:])
        assert "fill" in {Tiny().describe(point).split()[1].rstrip(",") for *_, point in seen}

    def test_what_goes_wrong_at_a_point_stays_there(self, troubled: Runs) -> None:
        runs = troubled
        assert len(runs.values("spent_ns")) == 2
        problems = {
            row.point["size_bytes"]: (row.problem, row.is_left_out) for row in runs if row.problem
        }
        assert problems == {
            1: ("there is too little of it: take more", True),
            2: ("OSError: [Errno 12] no memory", False),
            3: ("its process ended with -9", False),
            4: ("nothing after 1 s", False),
        }
        assert len(runs.failures) == 6
        (points,) = runs.left_out.values()
        assert [point["size_bytes"] for point in points] == [1]

    def test_a_run_that_is_ended_undoes_what_it_did(self, tmp_path: Path) -> None:
        (row,) = measure(Endless(tmp_path / "file"), "quick", silent)[0]
        assert row.problem == "nothing after 1 s"
        assert (tmp_path / "file").read_text() == "undone"


class TestLevels:
    def test_a_run_has_a_row_for_each_level(self, levels: Runs) -> None:
        fill = levels.where(way="fill")
        assert [(row.repetition, row.point["size_bytes"]) for row in fill] == [
            (0, 1),
            (0, 2),
            (1, 1),
            (1, 2),
        ]
        assert len(set(fill.values("pid"))) == 2  # one process for both levels

    def test_some_points_take_part_in_some_turns(self, levels: Runs) -> None:
        assert {row.repetition for row in levels.where(way="copy")} == {0}

    def test_a_run_that_fails_has_one_row_without_a_level(
        self, levels: Runs, tmp_path: Path
    ) -> None:
        failed = levels.where(way="fail")
        assert [row.point for row in failed] == [{"way": "fail", "size_bytes": None}] * 2
        data.save(tmp_path / "x.parquet", Levels(), levels, {})
        assert data.load(tmp_path / "x.parquet", Levels())[0].rows == levels.rows

    def test_repeats_replace_those_of_the_form(self) -> None:
        thrice = Levels()
        thrice.repeats = 3
        runs, _ = measure(thrice, "quick", silent)
        assert {row.repetition for row in runs} == {0, 1, 2}
        report = Report(thrice, "quick", 1, runs, 1.0, {})
        assert report.command == "livedma experiment levels --repeats 3 --seed 1 --out DIR"


class TestAnswers:
    def test_opposite_data_give_opposite_answers(self) -> None:
        tiny = Tiny()
        assert tiny.answer(made_up(3, 1))[0] == "Filling is slower than copying."
        assert tiny.answer(made_up(1, 3))[0] == "Filling is faster than copying."

    def test_a_ratio_is_taken_side_by_side(self) -> None:
        """The second turn, in which all took longer, has the same ratio as the first."""
        runs = made_up(3, 1)
        ratio = runs.ratio("spent_ns", {"way": "fill"}, {"way": "copy"})
        assert ratio is not None
        assert (ratio.low, ratio.median, ratio.high, ratio.count) == (3, 3, 3, 4)
        assert runs.ratio("spent_ns", {"way": "fill"}, {"way": "burn"}) is None

    def test_the_best_level(self) -> None:
        runs = made_up(3, 1)
        assert runs.best("spent_ns", "way") == "copy"
        assert runs.best("spent_ns", "way", max) == "fill"
        assert runs.best("pid", "way") is None

    def test_what_was_not_measured_has_no_median(self) -> None:
        assert made_up(1, 2).median("pid") is None
        spread = made_up(1, 2).spread("spent_ns", way="copy", size_bytes=4096)
        assert spread is not None
        assert (spread.low, spread.high, spread.count) == (8192, 81920, 2)


class TestData:
    def test_parquet_round_trip(self, measured: Runs, tmp_path: Path) -> None:
        about = {"host": {"kernel": "6"}, "seed": 1}
        data.save(tmp_path / "x.parquet", Tiny(), measured, about)
        found, said = data.load(tmp_path / "x.parquet", Tiny())
        assert found.rows == measured.rows
        assert said == about

    def test_problems_survive_it(self, troubled: Runs, tmp_path: Path) -> None:
        data.save(tmp_path / "x.parquet", Troubled(), troubled, {})
        assert data.load(tmp_path / "x.parquet", Troubled())[0].rows == troubled.rows

    def test_columns_say_what_they_are(self, written: Path) -> None:
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(written / "tiny.parquet")
        assert schema.field("spent_ns").metadata == {b"label": b"time spent", b"unit": b"ns"}
        assert str(schema.field("size_bytes").type) == "int64"

    def test_a_unit_is_in_the_name(self) -> None:
        with pytest.raises(ValueError, match="has to end in _ns"):
            Column("spent", "time", "ns")
        with pytest.raises(ValueError, match="is no unit"):
            Column("spent_furlongs", "way", "furlongs")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ns", "-"),
        (12, "ns", "12 ns"),
        (12.345, "ns", "12.3 ns"),
        (999_999, "ns", "1 ms"),
        (1_500_000, "ns", "1.5 ms"),
        (0, "ns", "0 ns"),
        (65536, "bytes", "64 KiB"),
        (4 << 30, "bytes", "4 GiB"),
        (2.5e9, "bytes_per_s", "2.5 GB/s"),
        (1_048_576, "count", "1,048,576"),
        (0.5, "count", "0.5"),
        (1.04, "ratio", "1.04x"),
        ("huge", "", "huge"),
    ],
)
def test_quantities(value: float | str | None, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


class TestTable:
    def test_medians_under_heads(self) -> None:
        lines = as_text(Tiny(), made_up(2, 1)).splitlines()
        assert lines[1].split() == ["way", "size", "spent", "rate"]
        # two turns of 8,192 ns and 81,920 ns
        assert lines[3].split() == ["fill", "4", "KiB", "45.1", "us", "500", "MB/s"]
        assert len(lines) == 3 + 4

    def test_a_terminal_gets_what_fits_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Tiny, "brief", ("rate_bytes_per_s",))
        assert as_text(Tiny(), made_up(2, 1)).splitlines()[0].split() == ["way", "size", "rate"]
        monkeypatch.setattr(Tiny, "brief", ())
        assert as_text(Tiny(), made_up(2, 1)) == ""

    def test_points_without_figures_have_no_line(self, troubled: Runs) -> None:
        assert len(as_text(Troubled(), troubled).splitlines()) == 3 + 1


class TestPlots:
    def test_svg(self, written: Path) -> None:
        root = ElementTree.parse(written / "tiny-time.svg").getroot()
        assert root.tag == f"{SVG}svg"
        texts = {"".join(each.itertext()).strip() for each in root.iter(f"{SVG}text")}
        assert {"Time by size", "size", "time spent", "4 KiB", "64 KiB", "fill", "copy"} <= texts

    def test_png(self, written: Path) -> None:
        """Chunks whose CRCs are right, and as many pixels as it says."""
        raw = (written / "tiny-ways.png").read_bytes()
        assert raw[:8] == b"\x89PNG\r\n\x1a\n"
        chunks, at = [], 8
        while at < len(raw):
            length, kind = struct.unpack_from("!I4s", raw, at)
            body = raw[at + 8 : at + 8 + length]
            (crc,) = struct.unpack_from("!I", raw, at + 8 + length)
            assert crc == zlib.crc32(kind + body)
            chunks.append((kind, body))
            at += 12 + length
        width, height, depth, color = struct.unpack_from("!IIBB", chunks[0][1])
        assert (width, height, depth, color) == (860, 640, 8, 6)
        pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
        assert len(pixels) == height * (1 + 4 * width)
        assert chunks[-1][0] == b"IEND"

    def test_the_same_data_give_the_same_plots(self, written: Path, tmp_path: Path) -> None:
        before = {path.name: path.read_bytes() for path in written.glob("*.svg")}
        write(report(made_up(2, 1)), tmp_path)
        assert before == {path.name: path.read_bytes() for path in tmp_path.glob("*.svg")}


class _Page(HTMLParser):
    """Holds the page to what it promises: every element closed, nothing fetched, ids unique."""

    _VOID = ("meta", "br", "link", "img")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.uses: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in self._VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._look(attrs)

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            assert name not in ("src", "srcset", "data", "xlink:href")
            if name == "href":
                assert str(value).startswith("#")
                self.uses.append(str(value)[1:])
            self.uses += re.findall(r"url\(#([^)]*)\)", str(value))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


class TestPage:
    @pytest.fixture
    def page(self, written: Path) -> _Page:
        page = _Page()
        page.feed((written / "tiny.html").read_text())
        page.close()
        return page

    def test_is_well_formed_and_needs_nothing_else(self, page: _Page, written: Path) -> None:
        assert page.open == []
        assert len(set(page.ids)) == len(page.ids)
        assert set(page.uses) <= set(page.ids)
        assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
        html = (written / "tiny.html").read_text()
        assert set(re.findall(r"https?://[^\s\"']+", html)) <= {"http://www.w3.org/2000/svg"}
        assert "@import" not in html
        ElementTree.fromstring(html.replace("<!DOCTYPE html>", ""))

    def test_says_it_all(self, page: _Page) -> None:
        for text in (
            Tiny.question,
            "Filling is slower than copying.",
            "45.1 us",
            "8.19 us to 81.9 us",
            Tiny.method[0],
            "fast & small",
            "livedma experiment tiny --seed 1 --out DIR",
        ):
            assert text in page.text
        assert page.tags.count("svg") == 2

    def test_follows_light_and_dark(self, written: Path) -> None:
        html = (written / "tiny.html").read_text()
        assert "color-scheme: light dark;" in html
        plots = html[html.index('<div class="plots">') : html.index("<h2>Table")]
        assert not re.findall(r"(?:fill|stroke): ?#[0-9a-f]{6}", plots)
        used = set(re.findall(r"var\((--\w+)\)", html))
        color = "#[0-9a-f]{6}"
        both = set(re.findall(rf"(--\w+): light-dark\({color}, {color}\);", html))
        assert used - both == {"--sans", "--mono", "--round"}

    def test_the_headline_says_of_how_many_runs_it_is(self, tmp_path: Path) -> None:
        write(report(of_turns(4)), tmp_path)
        body = (tmp_path / "tiny.html").read_text().partition("<body>")[2]
        assert "Of 4 runs of each point. Figures are medians" in body
        assert "warning" not in body

    def test_one_run_of_a_busy_machine_is_no_headline_without_a_warning(
        self, tmp_path: Path
    ) -> None:
        rows = [replace(row, others_share=0.4) for row in of_turns(1)]
        told = report(Runs(rows))
        assert told.basis == "Of one run of each point."
        few, busy = told.warnings
        assert few.startswith("There is 1 run of each point: ")
        assert busy.startswith(f"The machine was busy: in {len(rows)} of {len(rows)} measurements")
        assert about(told)["warnings"] == [few, busy]
        write(told, tmp_path)
        body = unescape((tmp_path / "tiny.html").read_text().partition("<body>")[2])
        assert body.index(few) < body.index(busy) < body.index("Filling is slower")

    def test_a_run_or_two_that_were_disturbed_are_no_reason_to_warn(self) -> None:
        first, *others = of_turns(4)
        rows = [replace(first, others_share=0.9), *(replace(o, others_share=0.0) for o in others)]
        assert report(Runs(rows)).warnings == []

    def test_says_what_is_missing(self, troubled: Runs, tmp_path: Path) -> None:
        write(Report(Troubled(), "quick", 1, troubled, 1.0, {}), tmp_path)
        text = (tmp_path / "troubled.html").read_text()
        assert "Left out (way copy, size 1 B): there is too little of it: take more" in text
        assert "Failed (way copy, size 3 B): its process ended with -9" in text


def test_the_host() -> None:
    host = describe_host()
    assert os.uname().release in host["kernel"]
    assert re.search(r"commit ([0-9a-f]{7,}(-dirty)?|unknown)$", host["livedma"])
    assert "GiB" in host["memory"]
