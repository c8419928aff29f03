# SPDX-License-Identifier: BSD-2-Clause
"""The page of a server in the lab's network is where a browser of this host is."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.cli.lab_page import with_page_here
from livedma.errors import PortInUseError
from livedma.lab.hosts import Host, two_hosts
from needs import needs


@pytest.fixture
def host() -> Iterator[Host]:
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts() as (one, _):
        yield one


@pytest.mark.parametrize(
    "line",
    [
        "livedma serve /srv",
        "livedma capture tapb --web",
        "livedma serve /srv --web 10.77.0.254:20080",
        "livedma serve /srv --web fd:7",
        "livedma serve /srv --web a:b:c",
        "sh -c true",
    ],
)
def test_other_commands_stay_as_they_are(line: str) -> None:
    assert with_page_here(line.split()) == (line.split(), None)


@pytest.mark.parametrize(
    "line",
    [
        "livedma serve /srv --web 127.0.0.1:0",
        "/opt/bin/livedma serve --web=127.0.0.1:0 /srv",
        "python3 -m livedma.cli serve /srv --web localhost:0 --window 16MiB",
    ],
)
def test_a_page_at_a_loopback_address_is_opened_here(line: str) -> None:
    words, sock = with_page_here(line.split())
    assert sock is not None
    with sock:
        at = words.index("--web")
        assert words[at + 1] == f"fd:{sock.fileno()}" and os.get_inheritable(sock.fileno())
        rest = [word for word in line.split() if "--web" not in word and ":0" not in word]
        assert [*words[:at], *words[at + 2 :]] == rest
        assert sock.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(PortInUseError, match="--web ADDR:PORT"):
            with_page_here(["livedma", "serve", "/srv", "--web", where])


@pytest.mark.slow
def test_a_browser_of_this_host_reaches_it(host: Host, tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    serve = ["livedma", "serve", str(tmp_path / "export"), "--listen", host.ipv4]
    serve += ["--state", str(tmp_path / "state"), "--control", str(tmp_path / "control")]
    words, sock = with_page_here([*serve, "--web", "127.0.0.1:0"])
    assert sock is not None
    with subprocess.Popen(
        host.command(*words), stderr=subprocess.PIPE, text=True, pass_fds=[sock.fileno()]
    ) as server:
        sock.close()
        assert server.stderr is not None
        said = ""
        while "control socket" not in (line := server.stderr.readline()):
            assert server.poll() is None
            said += line
        found = re.search(r"http://127\.0\.0\.1:\d+/", said)
        assert found is not None, said
        with urllib.request.urlopen(found[0], timeout=30) as page:
            assert page.status == 200 and b"livedma" in page.read()
        server.terminate()
