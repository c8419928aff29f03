# SPDX-License-Identifier: BSD-2-Clause
"""Decisions as structured lines: objects, and fields as systemd's journal takes them."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from livedma.cli import logs
from livedma.cli.log_forms import JournalHandler, JsonFormatter
from livedma.control.events import Events
from livedma.errors import LivedmaError
from livedma.rpc.connection_log import ConnectionLog, Peer

LIMIT_S = 60.0


@pytest.fixture
def decisions() -> Iterator[logging.Logger]:
    logger = logging.getLogger("livedma.decisions")
    level, handlers, logger.handlers = logger.level, logger.handlers, []
    logger.setLevel(logging.INFO)
    yield logger
    logger.setLevel(level)
    logger.handlers = handlers


@pytest.fixture
def everything() -> Iterator[logging.Logger]:
    """livedma's logger, as nobody has changed it."""
    logger = logging.getLogger("livedma")
    was = logger.level, logger.propagate, logger.handlers
    logger.handlers = []
    yield logger
    for handler in logger.handlers:
        handler.close()
    level, logger.propagate, logger.handlers = was
    logger.setLevel(level)


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))

    @property
    def last(self) -> dict[str, Any]:
        assert "\n" not in self.lines[-1]
        found: dict[str, Any] = json.loads(self.lines[-1])
        return found


def test_a_decision_is_an_object_with_all_it_says(decisions: logging.Logger) -> None:
    heard = Lines()
    decisions.addHandler(heard)
    data = {"bytes": 4 << 20, "share": float("nan"), "path": 'a "name"\nof two lines'}
    event = Events().tell("done", "mapped\nmore", connection=3, data=data, dry=True)
    found = heard.last
    when = datetime.strptime(found.pop("time"), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    assert abs(when.timestamp() - event.wall_s) < 0.001
    assert found == {
        "level": "info",
        "kind": "done",
        "connection": 3,
        "text": "mapped\nmore",
        "data": {**data, "share": None},
        "number": 1,
        "dry": True,
    }


def test_what_is_no_decision_has_the_same_form(decisions: logging.Logger) -> None:
    heard = Lines()
    decisions.addHandler(heard)
    try:
        raise ValueError("a\nb")
    except ValueError:
        decisions.exception("it %s", "failed")
    found = heard.last
    assert found["exception"].endswith("ValueError: a\nb")
    expected = {
        "level": "error",
        "kind": "log",
        "connection": None,
        "text": "it failed",
        "data": {},
    }
    assert expected.items() <= found.items()


class Journal:
    """journald's end of the protocol."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(LIMIT_S)
        self.socket.bind(str(path))
        self.was_file = False

    def next(self) -> dict[str, str]:
        raw, files, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
        self.was_file = bool(files)
        for file in files:
            assert raw == b""
            with os.fdopen(file, "rb") as opened:
                opened.seek(0)
                raw = opened.read()
                with pytest.raises(OSError):  # sealed: journald refuses it otherwise
                    os.truncate(file, 0)
        return dict(fields(raw))


def fields(raw: bytes) -> Iterator[tuple[str, str]]:
    while raw:
        line, _, rest = raw.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
        else:
            (length,) = struct.unpack_from("<Q", rest)
            name, value = line, rest[8 : 8 + length]
            assert rest[8 + length : 9 + length] == b"\n"
            rest = rest[9 + length :]
        yield name.decode(), value.decode()
        raw = rest


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "socket")
    with made.socket:
        yield made


@pytest.fixture
def to_journal(journal: Journal, decisions: logging.Logger) -> Iterator[JournalHandler]:
    handler = JournalHandler(journal.path)
    decisions.addHandler(handler)
    yield handler
    handler.close()


@pytest.mark.usefixtures("to_journal")
def test_the_journal_gets_fields(journal: Journal) -> None:
    Events().tell("plan", "map 4 MiB more", connection=7, data={"bytes": 4194304})
    assert journal.next() == {
        "MESSAGE": "plan      connection 7: map 4 MiB more",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "livedma",
        "LIVEDMA_KIND": "plan",
        "LIVEDMA_CONNECTION": "7",
        "LIVEDMA_NUMBER": "1",
        "LIVEDMA_DRY": "0",
        "LIVEDMA_DATA": '{"bytes":4194304}',
    }


@pytest.mark.usefixtures("to_journal")
def test_no_text_becomes_a_field(journal: Journal) -> None:
    text = "x\nPRIORITY=0\nLIVEDMA_KIND=forged"
    Events().tell("why", text)
    found = journal.next()
    assert (found["LIVEDMA_KIND"], found["MESSAGE"]) == ("why", f"why       {text}")
    assert "LIVEDMA_CONNECTION" not in found


@pytest.mark.usefixtures("to_journal")
def test_what_is_too_long_for_a_datagram_is_a_sealed_file(journal: Journal) -> None:
    Events().tell("why", "y" * (4 << 20))
    found = journal.next()
    assert journal.was_file and len(found["MESSAGE"]) > 4 << 20
    assert found["LIVEDMA_KIND"] == "why"


@pytest.mark.parametrize(
    ("level", "priority"), [("ERROR", "3"), ("WARNING", "4"), ("INFO", "6"), ("DEBUG", "7")]
)
@pytest.mark.usefixtures("to_journal")
def test_levels_are_priorities(
    level: str, priority: str, journal: Journal, decisions: logging.Logger
) -> None:
    decisions.setLevel(logging.DEBUG)
    decisions.log(logging.getLevelName(level), "a line")
    found = journal.next()
    assert (found["PRIORITY"], found["LIVEDMA_KIND"]) == (priority, "log")


@pytest.mark.usefixtures("to_journal")
def test_a_journal_that_is_gone_costs_no_line(
    journal: Journal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.socket.close()
    Events().tell("refuse", "new sessions")
    assert "refuse    new sessions (not in the journal: " in capsys.readouterr().err
    journal.path.unlink()
    again = Journal(journal.path)
    with again.socket:
        Events().tell("admit", "new sessions")
        assert again.next()["LIVEDMA_KIND"] == "admit"


@pytest.mark.parametrize("form", ["text", "json", "journal"])
def test_all_of_livedma_is_heard_in_one_form(
    form: str, journal: Journal, everything: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.start("warning", form, journal=journal.path)
    logging.getLogger("livedma.ui.web.app").warning("a client was cut off")
    Events().tell("policy", "static -> extend")  # which is no reason to wake somebody up
    logs.say("  control socket /run/x")
    *lines, last = capsys.readouterr().err.splitlines()
    assert everything.handlers
    if form == "json":
        assert [json.loads(one)["text"] for one in lines] == ["a client was cut off"]
        assert json.loads(last)["text"] == "control socket /run/x"
        return
    assert last == "  control socket /run/x"
    if form == "journal":
        assert not lines and journal.next()["MESSAGE"] == "a client was cut off"
    else:
        (line,) = lines
        assert line.endswith(" warning   a client was cut off")


def test_who_has_no_journal_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(LivedmaError, match=r"no journal listens at .*--log-format"):
        JournalHandler(tmp_path / "nothing")


def test_a_connection_has_its_fields_in_every_form(
    everything: logging.Logger, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    heard.settimeout(LIMIT_S)
    heard.bind(str(tmp_path / "journal"))
    for form in ("text", "json", "journal"):
        logs.start("info", form, journal=tmp_path / "journal")
    ConnectionLog().left(3, Peer("10.0.0.9", 4711, "rdma"), "the peer disconnected", 1.5, 7)
    fields = heard.recv(4096).decode().splitlines()
    heard.close()
    text, line = capsys.readouterr().err.splitlines()
    assert "left      connection 3: 10.0.0.9:4711 over rdma: the peer disconnected" in text
    found = json.loads(line)
    assert (found["kind"], found["connection"], found["level"]) == ("left", 3, "info")
    assert found["data"]["calls"] == 7 and found["data"]["seconds"] == 1.5
    assert {"LIVEDMA_KIND=left", "LIVEDMA_CONNECTION=3", "PRIORITY=6"} <= set(fields)
    data = next(one for one in fields if one.startswith("LIVEDMA_DATA="))
    assert json.loads(data.partition("=")[2]) == found["data"]
