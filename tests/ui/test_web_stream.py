# SPDX-License-Identifier: BSD-2-Clause
"""The stream: what a server is, then frames and decisions, for readers of any speed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

from tests.ui.web_site import LIMIT_S, frame, site, wait_for


def is_frame(number: int) -> Any:
    return lambda event, data: event == "frame" and data["number"] == number


def test_a_stream_begins_with_all_that_is_known() -> None:
    first = frame(7, last_event=1)
    with site(first=first) as it:
        it.events.tell("why", "requests wait", connection=1, data={"limit": "DMA memory"})
        with it.stream() as stream:
            event, hello = stream.next()
    assert (stream.status, event) == (200, "hello")
    assert "text/event-stream" in stream.head and "no-store" in stream.head
    assert hello["frame"] == json.loads(json.dumps(first.as_json()))
    assert hello["history"]["connections"]["1"]["mapped_bytes"] == [4 << 20]
    (told,) = hello["events"]
    assert (told["kind"], told["text"], told["data"]) == (
        "why",
        "requests wait",
        {"limit": "DMA memory"},
    )
    assert told["line"] == "why       connection 1: requests wait"
    assert hello["version"]


def test_a_stream_that_begins_before_the_first_frame() -> None:
    with site() as it, it.stream() as stream:
        _, hello = stream.next()
        it.feed.show(frame(1))
        event, data = stream.next()
    assert hello["frame"] is None
    assert (event, data["number"]) == ("frame", 1)


def test_only_the_last_events_are_repeated() -> None:
    with site(first=frame(1)) as it:
        for number in range(600):
            it.events.tell("plan", f"{number}")
        with it.stream() as stream:
            _, hello = stream.next()
    assert [one["text"] for one in hello["events"]] == [str(one) for one in range(100, 600)]


def test_clients_that_come_and_go_do_not_swell_the_beginning() -> None:
    with site() as it:
        for number in range(1, 101):
            one = frame(number)
            (connection,) = one.snapshot.connections
            gone = replace(connection, number=number)
            stays = replace(connection, number=1000)
            it.feed.show(replace(one, snapshot=replace(one.snapshot, connections=(gone, stays))))
        with it.stream() as stream:
            _, hello = stream.next()
    columns = hello["history"]["connections"]
    assert sorted(map(int, columns)) == [*range(70, 101), 1000]
    assert None not in columns["1000"]["sessions"]
    assert columns["70"]["sessions"] == [None] * 69 + [3] + [None] * 30


def test_a_decision_comes_without_a_frame_and_before_the_one_that_counts_it() -> None:
    with site(first=frame(1)) as it, it.stream() as stream:
        stream.next()
        it.events.tell("done", "mapped", connection=1)
        event, decision = stream.next()
        assert (event, decision["kind"], decision["number"]) == ("decision", "done", 1)
        # One that is told, and counted, before anybody hears of it.
        listeners, it.events.listeners = it.events.listeners, []
        it.events.tell("check", "keep", connection=1)
        it.feed.show(frame(2, last_event=2))
        messages = [stream.next(), stream.next()]
        it.events.listeners = listeners
    assert [(event, data["number"]) for event, data in messages] == [("decision", 2), ("frame", 2)]


def test_all_readers_get_all_decisions_in_order() -> None:
    with site(first=frame(1)) as it, it.stream() as one, it.stream() as other:
        for stream in (one, other):
            stream.next()
        tellers = [
            threading.Thread(target=lambda: [it.events.tell("plan", "x") for _ in range(50)])
            for _ in range(4)
        ]
        for teller in tellers:
            teller.start()
        for stream in (one, other):
            found = stream.until(lambda _, data: data["number"] == 200)
            assert [data["number"] for _, data in found] == list(range(1, 201))
        for teller in tellers:
            teller.join(LIMIT_S)


def test_a_thousand_sessions_arrive_whole() -> None:
    whole = frame(2, sessions=1000)
    with site(first=frame(1)) as it, it.stream() as stream:
        stream.next()
        it.feed.show(whole)
        _, data = stream.next()
        assert it.ask("/frame").json == data
    assert data == json.loads(json.dumps(whole.as_json()))


def test_who_never_reads_gets_the_newest_and_hinders_nobody() -> None:
    frames = 60
    with site(first=frame(1)) as it, it.dialled(receive_bytes=4096) as lazy, it.stream() as quick:
        lazy.sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: it.web._hub.readers == 2)
        quick.next()
        for number in range(2, frames):
            it.feed.show(frame(number, sessions=300))
            quick.until(is_frame(number))
        # A slow reader has missed most of them, and they are kept nowhere.
        (kept,) = (
            transport.get_write_buffer_size()
            for transport in it.web._server._connections.values()
            if transport.get_write_buffer_size()
        )
        one = len(it.ask("/frame").body)
        assert kept < 2 * one
        received = b""
        newest = f'"number":{frames - 1},'.encode()
        while newest not in received:
            chunk = lazy.recv(1 << 16)
            assert chunk
            received += chunk
    assert received.count(b"event: frame") < frames / 2


def test_who_takes_nothing_for_too_long_is_cut_off() -> None:
    with site(first=frame(1), stuck_s=0.5) as it, it.dialled(receive_bytes=4096) as lazy:
        lazy.sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: it.web._hub.readers == 1)
        for number in range(2, 20):
            it.feed.show(frame(number, sessions=300))
        wait_for(lambda: it.web._hub.readers == 0)
        wait_for(lambda: not it.web._server.connections)


def test_a_silent_stream_says_that_it_is_there() -> None:
    with site(first=frame(1), keep_alive_s=0.05) as it, it.stream() as stream:
        stream.next()
        threading.Timer(0.5, lambda: it.feed.show(frame(2))).start()
        assert stream.next()[0] == "frame"
    assert stream.comments > 0


def test_no_more_streams_than_allowed() -> None:
    with site(first=frame(1), streams=2) as it:
        with it.stream() as one, it.stream() as two:
            assert (one.status, two.status) == (200, 200)
            refused = it.ask("/stream")
            assert (refused.status, refused.json) == (
                503,
                {"error": "2 read the stream already"},
            )
            assert refused.headers["Retry-After"]
            assert it.ask("/frame").status == 200  # which is no stream
        wait_for(lambda: it.web._hub.readers == 0)
        with it.stream() as again:
            assert again.status == 200


def test_streams_end_with_the_server() -> None:
    with site(first=frame(1)) as it, it.stream() as stream, it.dialled(4096) as lazy:
        lazy.sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        it.feed.show(frame(2, sessions=5000))
        stream.until(is_frame(2))
        it.web.close()
        assert not it.web._thread.is_alive()
        assert not it.web._frames.is_alive()
        assert list(stream._messages) == []
        assert it.events.listeners == []
        it.events.tell("plan", "nobody hears it")
