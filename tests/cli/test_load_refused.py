# SPDX-License-Identifier: BSD-2-Clause
"""What livedma load says when it cannot begin: one sentence, with numbers and a way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livedma.cli import load_page, main
from livedma.memory.headroom import Headroom
from livedma.nfs.load import Plan, footprint, links
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from needs import needs
from unprivileged import as_user

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT = f"{_NET}.80", f"{_NET}.81"
PORTS = {"rdma": 20049, "tcp": 20490}


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    directory = tmp_path_factory.mktemp("export")
    (directory / "file").write_text("x")
    directory.chmod(0o755)
    (directory / "shared").mkdir()
    (directory / "shared").chmod(0o777)
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=PORTS["tcp"],
        rdma_port=PORTS["rdma"],
        state=tmp_path_factory.mktemp("state"),
        config=Config(squash="none"),
    )
    with NfsService(directory, service_options):
        yield directory


def refused(capsys: pytest.CaptureFixture[str], *options: str, proto: str = "tcp") -> str:
    where = ["load", SERVER, "--proto", proto, "--port", str(PORTS[proto]), "--seconds", "0.1"]
    assert main([*where, *options]) == 1
    said = capsys.readouterr().err
    assert said.startswith("livedma: ")
    assert len(said.splitlines()) == 1
    return said


@pytest.mark.parametrize("proto", PORTS)
@pytest.mark.parametrize("ramp", [(), ("--ramp", "9")])
def test_operations_that_are_too_large(
    export: Path, capsys: pytest.CaptureFixture[str], proto: str, ramp: tuple[str, ...]
) -> None:
    said = refused(capsys, "--size", "8MiB", *ramp, proto=proto)
    assert "the server takes 1,048,576 bytes a call at most, and --size is 8,388,608" in said
    assert "use --size 1048576 or less" in said


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--sessions", "64", "--file-size", "256KiB"), 0, "errors      none"),
        (("--size", "1MiB"), 0, "errors      none"),
        (("--size", "100MiB"), 1, "use --size 1048576 or less"),
    ],
)
def test_a_plain_user_may_use_usual_sizes(
    export: Path, options: tuple[str, ...], status: int, words: str
) -> None:
    """More memory than the usual limit lets users pin; what stops the last is the server."""
    where = ["load", SERVER, "--source", CLIENT, "--dir", "/shared", "--seconds", "0.1"]
    done = subprocess.run(
        [*as_user(8 << 20), sys.executable, "-m", "livedma.cli", *where, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, words in done.stdout + done.stderr) == (status, True), done
    assert not list((export / "shared").iterdir())


def test_memory_that_takes_long_to_pin(
    export: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is there: gigabytes of --size take longer than it has to answer."""
    take = links.RdmaLinks._memory

    def slow(*args: Any) -> Any:
        time.sleep(3.1)
        return take(*args)

    monkeypatch.setattr(links.RdmaLinks, "_memory", slow)
    monkeypatch.setattr(links.RdmaLinks.open, "__defaults__", (6.0,))
    assert "the server takes 1,048,576 bytes" in refused(capsys, "--size", "8MiB", proto="rdma")


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        ("/file", "is no directory"),
        ("/nowhere", "NOENT"),
        ("/" + 300 * "a", "NAMETOOLONG"),
        ("/file/below", "NOTDIR"),
    ],
)
def test_directories(
    export: Path, capsys: pytest.CaptureFixture[str], directory: str, words: str
) -> None:
    said = refused(capsys, "--dir", directory)
    assert words in said
    assert "--dir" in said


def test_files_that_have_no_room(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "--sessions", "1000", "--file-size", "1000GiB", "--size", "1MiB")
    assert "the files of 1,000 sessions would take 1073.7 TB, and / of the server has" in said
    assert {one.name for one in export.iterdir()} == {"file", "shared"}


def test_more_sessions_than_memory(
    export: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "headroom", lambda: Headroom(1 << 30, "a small machine"))
    said = refused(capsys, "--sessions", "100000")
    assert "100,000 sessions would take 9." in said
    assert "and 1.1 GB are free of a small machine: use fewer --sessions" in said


def test_much_memory_is_announced() -> None:
    said = load_page.heading(Plan(sessions=100_000), "10.0.0.1")
    assert said.endswith("files of 1 MiB, 104.9 GB in all; 9.5 GB of memory here")
    assert load_page.heading(Plan(), "10.0.0.1").endswith("files of 1 MiB")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dir", "../.."], "without .."),
        (["--dir", "/\udcff"], "no UTF-8"),
        (["--size", "2GiB"], "1024 MiB or less"),
        (["--size", "1"], "operations of 1 byte: "),
        (["--sessions", "300", "--connections", "300"], "256 or fewer"),
    ],
)
def test_wrong_use(capsys: pytest.CaptureFixture[str], options: list[str], words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", SERVER, *options])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (["10.0.0.1", "--source", "::1"], "different IP versions"),
        (["fe80::1"], "link-local"),
        (["a.name.invalid"], "no name that can be looked up"),
        ([SERVER, "--source", "192.0.2.7"], "no interface of this host"),
    ],
)
def test_addresses(capsys: pytest.CaptureFixture[str], where: list[str], words: str) -> None:
    assert main(["load", *where]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_something_else_than_nfs(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server((SERVER, 0)) as plug:

        def answer() -> None:
            with plug.accept()[0] as one:
                one.recv(4096)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                one.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        port = str(plug.getsockname()[1])
        assert main(["load", SERVER, "--proto", "tcp", "--port", port]) == 1
        thread.join()
    said = capsys.readouterr().err
    assert "closed the connection, or answers with something else than NFS: see if" in said
    assert len(said.splitlines()) == 1
