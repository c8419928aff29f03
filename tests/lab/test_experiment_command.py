# SPDX-License-Identifier: BSD-2-Clause
"""livedma experiment: what it lists, prints, keeps and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_experiment import Tiny, Troubled

from livedma.cli import main
from livedma.lab.experiment import data, registry

pytestmark = pytest.mark.slow  # many processes


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Experiments that take no time instead of those that are there."""
    monkeypatch.setattr(registry, "EXPERIMENTS", (Tiny(), Troubled()))


def livedma(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["livedma", "experiment", *args], capture_output=True, text=True, timeout=60
    )


def test_the_list() -> None:
    listed = livedma()
    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names == [experiment.name for experiment in registry.EXPERIMENTS]
    assert [each["name"] for each in json.loads(livedma("--json").stdout)] == names


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("pancakes",), "no experiment is called 'pancakes'"),
        (("--full",), "NAME is missing"),
        (("--out", "x"), "NAME is missing"),
        (("pool", "--seed", "one"), "invalid int"),
        (("pool", "--store", "disk"), "--store is for ramp: pool has none"),
        (("ramp", "--store", "tape"), "invalid choice"),
        (("ramp", "--repeats", "0"), "--repeats"),
    ],
)
def test_wrong_use(args: tuple[str, ...], said: str) -> None:
    refused = livedma(*args)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_help_has_an_example() -> None:
    assert "livedma experiment pool --out results" in livedma("--help").stdout


@pytest.mark.usefixtures("_tiny")
class TestMaking:
    def test_prints_the_table_and_the_answer(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["experiment", "tiny"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(Tiny.question)
        assert "\nfill   4 KiB" in out
        assert "- Filling is " in out
        assert "--out DIR keeps the data" in out

    def test_keeps_everything(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        out = tmp_path / "new" / "results"
        assert main(["experiment", "tiny", "--out", str(out)]) == 0
        names = ["tiny-time.png", "tiny-time.svg", "tiny-ways.png", "tiny-ways.svg", "tiny.html"]
        assert sorted(path.name for path in out.iterdir()) == [*names, "tiny.parquet"]
        assert f"read {out}/tiny.html" in capsys.readouterr().out
        _, about = data.load(out / "tiny.parquet", Tiny())
        assert about["answer"][1] == "8 pairs were compared."
        assert about["command"] == "livedma experiment tiny --seed 1 --out DIR"

    def test_full_measures_more(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["experiment", "tiny", "--full", "--seed", "7", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["form"], found["seed"], len(found["runs"])) == ("full", 7, 42)

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["experiment", "tiny", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["question"] == Tiny.question
        assert found["files"] == []
        assert {run["way"] for run in found["runs"]} == {"fill", "copy"}
        assert all(run["spent_ns"] > 0 for run in found["runs"])

    def test_a_failure_is_told_and_leaves_the_rest(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        assert main(["experiment", "troubled", "--out", str(tmp_path)]) == 1
        out = capsys.readouterr().out
        assert "- Failed (way copy, size 3 B): its process ended with -9" in out
        assert "- Left out (way copy, size 1 B)" in out
        assert (tmp_path / "troubled.html").exists()

    def test_a_place_that_cannot_be_written_to_is_found_before(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        assert main(["experiment", "tiny", "--out", str(tmp_path / "file" / "x")]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert "cannot write into" in said.err

    def test_without_matplotlib_nothing_is_measured_in_vain(
        self,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        assert main(["experiment", "tiny", "--out", str(tmp_path)]) == 1
        said = capsys.readouterr()
        assert "plots need matplotlib" in said.err
        assert said.out == ""
