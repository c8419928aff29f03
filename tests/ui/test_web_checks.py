# SPDX-License-Identifier: BSD-2-Clause
"""Which request may ask for what: tokens, origins, names and the form of requests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from tests.ui.web_site import LIMIT_S, TOKEN, Site, frame, site, wait_for

from livedma.errors import LivedmaError, NoRoomError

EXTEND = {"connection": 1, "bytes": 4096}


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with site(first=frame(1), metrics=lambda accept: (b"livedma_up 1\n", "text/plain")) as it:
        yield it


@pytest.fixture
def it(shared: Site) -> Site:
    shared.acts.done.clear()
    shared.acts.refusal = None
    return shared


@pytest.mark.parametrize(
    ("name", "body", "done"),
    [
        ("extend", EXTEND, ("extend", 1, 4096)),
        ("shrink", EXTEND, ("shrink", 1, 4096)),
        ("policy", {"name": "static"}, ("policy", "static")),
    ],
)
def test_with_the_token_it_is_done(it: Site, name: str, body: Any, done: Any) -> None:
    answer = it.do(name, body)
    assert (answer.status, answer.json) == (200, {"ok": f"done: {name}"})
    assert it.acts.done == [done]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer \xe9",
    ],
)
def test_without_the_token_nothing_is_done(it: Site, given: str) -> None:
    answer = it.do("extend", EXTEND, Authorization=given)
    assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert it.acts.done == []


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
    ],
)
def test_another_sites_page_does_nothing_even_with_the_token(
    it: Site, headers: dict[str, str]
) -> None:
    assert it.do("extend", EXTEND, **headers).status == 403
    assert it.acts.done == []


def test_the_page_itself_may(it: Site) -> None:
    origin = f"http://127.0.0.1:{it.port}"
    assert it.do("extend", EXTEND, Origin=origin, Sec_Fetch_Site="same-origin").status == 200
    proxied = {"Host": "storage.example", "Origin": "https://storage.example"}
    assert it.do("extend", EXTEND, **proxied).status == 200


@pytest.mark.parametrize("path", ["/stream", "/frame", "/why", "/static/index.html"])
def test_another_sites_page_reads_nothing(it: Site, path: str) -> None:
    assert it.ask(path, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert it.ask(path, Origin="http://evil.example").status == 403
    answer = it.ask("/frame")
    assert not any(name.startswith("Access-Control") for name in answer.headers)


def test_links_to_the_page_may_be_followed(it: Site) -> None:
    assert it.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert it.ask("/", Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate").status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "127.0.0.1:x"],
)
def test_a_name_that_is_not_its_own(it: Site, host: str) -> None:
    answer = it.ask("/", Host=host)
    assert answer.status == 421
    assert it.do("extend", EXTEND, Host=host).status == 421
    assert it.acts.done == []


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost:20080",
        "LOCALHOST.",
        "[::1]:20080",
        "192.0.2.7:80",
        "storage.example",
        "Storage.Example:8443",
        socket.gethostname(),
    ],
)
def test_names_that_are_its_own(it: Site, host: str) -> None:
    assert it.ask("/healthz", Host=host).status == 200


def test_every_answer_protects_the_browser(it: Site) -> None:
    for path in ("/", "/frame", "/static/index.html", "/none", "/do/extend"):
        headers = it.ask(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "aiohttp" not in headers["Server"]
    assert it.ask("/frame").headers["Cache-Control"] == "no-store"
    assert it.ask("/why").headers["Cache-Control"] == "no-store"


def test_files_that_have_not_changed_are_not_sent_again(it: Site) -> None:
    first = it.ask("/")
    assert (first.status, first.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    again = it.ask("/", If_None_Match=first.headers["Etag"])
    assert (again.status, again.body) == (304, b"")
    assert it.ask("/static/index.html").body == first.body


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/index.html%00",
        "/static/",
        "/static/app.py",
        "/../../etc/passwd",
        "//etc/passwd",
        "/do/",
        "/stream/x",
    ],
)
def test_paths_that_are_nowhere(it: Site, path: str) -> None:
    answer = it.ask(path)
    assert answer.status == 404
    assert set(answer.json) == {"error"}


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_methods_that_nothing_has(it: Site, method: str) -> None:
    with_token = it.ask("/frame", method, Authorization=f"Bearer {TOKEN}")
    assert (with_token.status, it.ask("/frame", method).status) == (405, 401)
    assert with_token.headers["Allow"] == "GET,HEAD"


def test_what_is_asked_by_the_wrong_method(it: Site) -> None:
    assert it.ask("/do/extend").status == 405
    assert it.ask("/frame", "POST", Authorization=f"Bearer {TOKEN}").status == 405
    assert it.ask("/stream", "HEAD").status == 405


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 3000,
        {},
        {"connection": 1},
        {**EXTEND, "force": True},
    ],
)
def test_bodies_that_are_none(it: Site, body: Any) -> None:
    answer = it.do("extend", body)
    assert (answer.status, answer.json) == (
        400,
        {"error": "extend takes an object with connection and bytes"},
    )
    assert it.acts.done == []


def test_actions_that_do_not_exist(it: Site) -> None:
    answer = it.do("fly", {})
    assert answer.status == 404
    assert answer.json == {"error": "there is no 'fly': one of extend, shrink, policy"}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_actions_come_as_json_which_forms_cannot_send(it: Site, kind: str) -> None:
    assert it.do("extend", EXTEND, Content_Type=kind).status == 415
    assert it.acts.done == []


def test_too_long_a_body(it: Site) -> None:
    assert it.do("extend", b" " * (1 << 20)).status == 413
    assert it.do("extend", EXTEND).status == 200


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (NoRoomError("its window has room for 1 MiB more"), 409),
        (LivedmaError("there is no connection 9 over RDMA"), 409),
        (ValueError("a positive number of bytes"), 400),
        (OSError(12, "Cannot allocate memory"), 409),
    ],
)
def test_what_stands_against_it_is_said(it: Site, refusal: Exception, status: int) -> None:
    it.acts.refusal = refusal
    answer = it.do("extend", EXTEND)
    assert (answer.status, answer.json) == (status, {"error": str(refusal)})


def test_no_queue_of_actions_builds_up() -> None:
    import threading

    with site(first=frame(1)) as it:
        it.acts.may_go_on = threading.Event()
        answers: list[int] = []
        askers = [
            threading.Thread(target=lambda: answers.append(it.do("extend", EXTEND).status))
            for _ in range(8)
        ]
        for asker in askers:
            asker.start()
        wait_for(lambda: answers.count(503) == 4)
        it.acts.may_go_on.set()
        for asker in askers:
            asker.join(LIMIT_S)
        assert sorted(answers) == [200] * 4 + [503] * 4
        assert len(it.acts.done) == 4


def test_why(it: Site) -> None:
    whole = it.ask("/why").json
    assert (whole["is_slow"], whole["limit"]) == (True, "DMA memory")
    session = it.ask("/why?session=" + "0" * 31 + "1")
    assert session.json["session"] == "0" * 31 + "1"
    assert it.ask("/why?session=").status == 404
    unknown = it.ask("/why?session=ffff")
    assert (unknown.status, unknown.json) == (404, {"error": "there is no session ffff"})


def test_before_anything_was_seen() -> None:
    with site() as it:
        assert it.ask("/why").status == 503
        assert it.ask("/healthz").status == 200
        assert it.ask("/metrics").status == 404  # until somebody measures


def test_metrics_are_whoever_measures(it: Site) -> None:
    answer = it.ask("/metrics", Accept="text/plain")
    assert (answer.status, answer.body) == (200, b"livedma_up 1\n")
    assert answer.headers["Content-Type"] == "text/plain"
