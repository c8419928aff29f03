# SPDX-License-Identifier: BSD-2-Clause
"""The picture of a watch: it fits, it tells sessions apart, and it says what is not seen."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from tests.ui.made_frames import frame
from tests.ui.made_views import SENTENCES, inside_nfsd, nothing, view

from livedma.monitor.snapshot import InsideTcp, Losses, Times
from livedma.ui.top.glyphs import ASCII, UNICODE, Glyphs, width_of
from livedma.ui.top.heading import clock
from livedma.ui.top.picture import as_text, cells
from livedma.ui.watch.table import Table
from livedma.ui.watch.text import Lines
from livedma.ui.watch.views import View, waits_of, words_of_losses


def drawn(
    it: View, width: int = 80, height: int | None = None, glyphs: Glyphs = UNICODE
) -> list[str]:
    lines = Table().lines(it, width, height, glyphs)
    assert all(cells(line) <= width for line in lines)
    return [as_text(line) for line in lines]


def changed(it: View, **changes: object) -> View:
    return replace(it, snapshot=replace(it.snapshot, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("sessions", [0, 1, 5, 60, 1000])
@pytest.mark.parametrize("connections", [1, 9, 100])
@pytest.mark.parametrize("size", [(80, 24), (160, 50), (100, 12), (60, 20)])
def test_it_fits(sessions: int, connections: int, size: tuple[int, int]) -> None:
    lines = drawn(view(sessions, connections), *size)
    assert len(lines) <= size[1]
    assert all(width_of(line) <= size[0] for line in lines)


@pytest.mark.parametrize("width", [80, 160])
def test_all_that_is_asked_for_is_in_it(width: int) -> None:
    it = view(5)
    text = "\n".join(drawn(it, width))
    one = it.snapshot.sessions[0]
    (row,) = [line for line in text.splitlines() if line.strip().startswith(one.id[:16])]
    connection = it.connections[0]
    for figure in (f"{one.operations}", f"{one.read_bytes / 1e6:,.1f}", "900 us"):
        assert figure in row.split() or figure in row
    assert f"{connection.client} qp {connection.client_qpn}" in text and connection.server in text
    assert clock(connection.learnt_s or 0) in text and "its start" in text
    assert "resent" in text and "NAKs" in text and "12/64" in text
    assert "slow, limited by credits: all credits are in use" in text


def test_sessions_whose_ids_begin_alike_are_told_apart() -> None:
    """As those of the kernel's nfsd do."""
    it = view(60, 2)
    rows = [line.split()[0] for line in drawn(it) if line.startswith(" 01020304")]
    assert len(set(rows)) == 60


def test_a_short_id_is_enough_where_it_can_be() -> None:
    it = view(3)
    ids = ["aa" * 16, "bb" * 16, "cc" * 16]
    sessions = tuple(
        replace(one, id=id_) for one, id_ in zip(it.snapshot.sessions, ids, strict=True)
    )
    text = "\n".join(drawn(changed(it, sessions=sessions)))
    assert " aaaaaaaa " in text and "aaaaaaaaa" not in text


def test_what_has_no_row_is_summed() -> None:
    it = view(60)
    lines = drawn(it, 80, 24)
    (rest,) = [line for line in lines if " more: " in line]
    shown = [line for line in lines if line.startswith(" 01020304")]
    assert f"{60 - len(shown)} more: " in rest
    hidden = [one for one in it.snapshot.sessions if not any(one.id[:16] in line for line in shown)]
    assert f"{sum(one.operations for one in hidden):,} op/s" in rest


def test_what_is_not_seen_is_said() -> None:
    text = " ".join(" ".join(drawn(view(5))).split())
    for sentence in SENTENCES:
        assert sentence in text
    assert "not seen" not in "".join(drawn(replace(view(5), unseen=())))


def test_without_traffic_it_says_what_it_waits_for() -> None:
    assert any("waiting for NFS/RDMA traffic at lo, eth0" in line for line in drawn(nothing()))


def test_only_ascii_where_that_is_wanted() -> None:
    assert all(line.isascii() for line in drawn(view(60), 80, 24, ASCII))


def test_names_of_clients_do_nothing_to_the_terminal() -> None:
    it = view(1, 1)
    bad = replace(it.connections[0], client="\x1b[2Jx", client_qpn=0)
    found = changed(it, connections=(bad,))
    assert "\x1b" not in "".join(drawn(found, 160)) + "".join(Lines().of(found))


def test_losses_are_words() -> None:
    assert list(words_of_losses(Losses())) == []
    assert list(words_of_losses(Losses(early=4))) == []  # these are no losses
    (sentence,) = words_of_losses(Losses(connections=1, replies=20))
    assert "no place (1), replies to calls that had not been seen (20)" in sentence


def test_waits_that_only_a_server_knows_are_shown() -> None:
    """Of any source that fills them: the fields' names are the words."""
    inside = next(one for one in frame(1).snapshot.connections if one.inside is not None)
    assert {name for name, _ in waits_of(inside)} <= {
        one.name.replace("_", " ")
        for one in fields(type(inside.inside))  # type: ignore[arg-type]
    }
    times = Times(10, 10**8, 10**7, 2 * 10**7, 3 * 10**7)
    it = view(2, 1)
    tcp = replace(
        it.connections[0],
        transport="tcp",
        client_port=700,
        tcp=InsideTcp(unsent_bytes=0, thread_waits=times, storage=Times()),
    )
    assert waits_of(tcp) == [("thread waits", times)]
    found = changed(it, connections=(tcp,))
    text = "\n".join(drawn(found, 160))
    assert "thread waits 10 ms (p99 20 ms)" in text and " tcp " in text and ":700" in text
    assert any("thread waits 10 ms" in line for line in Lines().of(found))
    assert waits_of(it.connections[0]) == []


@pytest.mark.parametrize("width", [80, 160])
def test_what_nfsd_is_busy_with_is_shown(width: int) -> None:
    it = inside_nfsd(3, 2)
    text = "\n".join(drawn(it, width))
    assert "nfsd: 4.5 of 16 threads busy, CPU 35% of 2" in text
    assert "last credit" in text and "NAKs" not in text  # the NIC knows those
    (rdma,) = [line for line in drawn(it, width) if "!   1 " in line]
    assert "100" in rdma.split()
    said = " ".join(text.split())
    assert "limited by credits: the client has all its 64 credits in use at" in said
    assert "thread waits 2 ms (p99 3 ms)" in said
    lines = list(Lines().of(it))
    assert any("nfsd: 4.5 of 16 threads busy" in line for line in lines)
    assert any("connection 1: calls that took the last credit 100" in line for line in lines)
    assert "last credit" not in "\n".join(drawn(view(3), 160))


def test_columns_of_the_inside_come_with_a_source_that_knows_them() -> None:
    sessions = frame(3).snapshot.sessions
    assert any(one.inside for one in sessions)
    it = view(3)
    assert "slots" not in "\n".join(drawn(it, 160))
    known = changed(it, sessions=tuple(replace(one, connections=(1,)) for one in sessions))
    assert "slots" in "\n".join(drawn(known, 200))


def test_lines_tell_once_what_stays() -> None:
    lines = Lines()
    first, second = list(lines.of(view(3))), list(lines.of(view(3, at_s=2.0)))
    assert sum("not seen: " in line for line in first) == len(SENTENCES)
    assert not any("not seen: " in line or "from its start" in line for line in second)
    assert sum(" on " in line for line in second) == 3
    assert all(line[2] == line[5] == ":" for line in (*first, *second))


def test_idle_ones_have_no_line() -> None:
    it = view(2, 1)
    sessions = tuple(replace(one, operations=0, in_flight=0) for one in it.snapshot.sessions)
    assert not any(" on 1" in line for line in Lines().of(changed(it, sessions=sessions)))
