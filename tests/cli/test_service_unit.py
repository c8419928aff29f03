# SPDX-License-Identifier: BSD-2-Clause
"""The unit file: systemd takes it, and its capabilities are enough, and none of them too many."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from as_service import CLIENT, SERVER, UNIT, USER, Service, capabilities, lines, service
from as_service import open_directory as made_directory

from bpf_links import links_of
from livedma.cli.serve.settings import Settings, keys
from needs import needs

LIMIT_S = 60.0
MEMORY = ("--window", "4MiB", "--mapped", "1/4", "--store-delay", "20ms")


@pytest.fixture
def directory() -> Iterator[Path]:
    with made_directory() as ret:
        yield ret


def use(server: Service, kind: str) -> Any:
    return server.use(kind, str(USER))


def all_links() -> set[int]:
    """Lists those of BPF, of any owner."""
    needs(shutil.which("bpftool"), "bpftool is not installed")
    done = subprocess.run(["bpftool", "-j", "link"], capture_output=True, check=True, timeout=60)
    return {one["id"] for one in json.loads(done.stdout)}


def owners(server: Service) -> dict[str, tuple[int, int]]:
    found = [path for path in server.export.iterdir() if path.is_file()]
    return {path.name: (path.stat().st_uid, path.stat().st_gid) for path in found}


def wait_for_source(server: Service) -> str:
    """What it watches by, once that is known."""
    end_s = time.monotonic() + LIMIT_S
    while " source " not in server.said:
        assert time.monotonic() < end_s, server.said
        time.sleep(0.05)
    return str(server.ask("snapshot", sessions=False)["source"])


def load(server: Service) -> None:
    """Its exit status is 1 if one byte is wrong."""
    server.run(
        *(sys.executable, "-m", "livedma.cli", "load", SERVER, "--source", CLIENT),
        *("--sessions", "24", "--depth", "2", "--seconds", "3", "--rw", "mix"),
    )


def test_systemd_takes_it() -> None:
    needs(shutil.which("systemd-analyze"), "systemd is not installed")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    others = [line for line in done.stderr.splitlines() if "/usr/bin/livedma" not in line]
    assert [line for line in others if UNIT.name in line or str(UNIT) in line] == []


def test_what_it_may_have_is_what_it_has() -> None:
    assert lines("CapabilityBoundingSet") == lines("AmbientCapabilities")
    assert lines("NoNewPrivileges") == ["yes"] and lines("Type") == ["notify"]
    # An NFS server makes files that are set-group-ID for its clients.
    assert not lines("RestrictSUIDSGID") and not lines("DynamicUser")


def test_its_command_line_is_right(tmp_path: Path) -> None:
    program, command, *words = lines("ExecStart")
    assert (Path(program).name, command) == ("livedma", "serve")
    (tmp_path / "livedma.toml").write_text("")
    words = [str(tmp_path / "livedma.toml") if one.endswith(".toml") else one for one in words]
    values = Settings.of(words).values
    assert str(values.control) == f"/run/{lines('RuntimeDirectory')[0]}/serve"
    assert str(values.state) == f"/var/lib/{lines('StateDirectory')[0]}"
    assert lines("ExecReload")[1:] == ["reload", "--control", str(values.control)]
    assert "log-format" in keys() and values.log_format == "journal"


@pytest.mark.slow
def test_everything_works_with_exactly_these(directory: Path) -> None:
    options = (*MEMORY, "--web", "127.0.0.1:20080")
    with service(*options, held=capabilities(), directory=directory) as server:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        assert f"Uid:\t{USER}\t{USER}" in status and "NoNewPrivs:\t1" in status
        for kind in ("tcp", "rdma"):
            found = use(server, kind)
            assert found[f"/{kind}-1001"] == f"/{kind}-1001"
            refused = {"/below/x": "ACCESS", f"/{kind}-1001": "ACCESS"}
            assert found["refused"] == {
                f"{uid} {path}": status for uid in (1002, USER) for path, status in refused.items()
            }
            found_owners = owners(server)
            assert found_owners[f"{kind}-1001"] == (1001, 2001)
            assert found_owners[f"{kind}-1002"] == (1002, 2002)
            assert found_owners[f"{kind}-root"] == (65534, 65534)
        assert wait_for_source(server) == "bpf+server"
        facts = server.ask("server")
        assert facts["acts_as_clients"] and facts["handles_survive"]
        assert facts["ports"] == {SERVER: "packet"}
        load(server)
        done = [one for one in server.ask("decisions")["events"] if one["kind"] == "done"]
        assert done and "mapped 1 MiB ->" in done[0]["text"], server.said
        said = server.run(
            *(sys.executable, "-c"),
            "import urllib.request as r; print(r.urlopen('http://127.0.0.1:20080/healthz').status)",
        )
        assert said.strip() == "200"
        links = links_of(server.process.pid)
        assert links
        server.stop()
        assert list((directory / "run").iterdir()) == []
        assert "Traceback" not in server.said
        assert not links & all_links()


@pytest.mark.slow
def test_root_that_is_not_squashed_and_everybody_after(directory: Path) -> None:
    """To be root for a client and back takes capabilities from a thread; it gets them again."""
    held = capabilities()
    with service("--squash", "none", "--threads", "1", held=held, directory=directory) as server:
        for kind in ("tcp", "rdma"):
            found = use(server, kind)
            assert found["refused"][f"{USER} /{kind}-1001"] == "ACCESS"
            assert owners(server)[f"{kind}-root"] == (0, 0)
        server.stop()


@pytest.mark.slow
def test_a_client_goes_on_after_a_restart(directory: Path) -> None:
    """By its handle: the file has another name by then."""
    held = capabilities()
    script = str(Path(__file__).with_name("service_client.py"))
    with service("--lease", "5", held=held, directory=directory) as server:
        client = subprocess.Popen(
            server.within(sys.executable, script, "hold"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert client.stdout is not None and client.stdout.readline() == "held\n"
        server.stop()
    with client:
        (directory / "export" / "held").rename(directory / "export" / "renamed")
        with service("--lease", "5", held=held, directory=directory, beside=client.pid) as server:
            said, _ = client.communicate("\n", timeout=LIMIT_S)
            assert said == "before and after\n", server.said
            server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("missing", capabilities())
def test_with_one_less_a_part_is_missing_and_said(missing: str, directory: Path) -> None:
    held = [one for one in capabilities() if one != missing]
    with service(held=held, directory=directory) as server:
        source, facts = wait_for_source(server), server.ask("server")
        if missing in ("CAP_SETUID", "CAP_SETGID"):
            assert not facts["acts_as_clients"] and missing in server.said
            use(server, "tcp")
            assert owners(server)["tcp-1001"] == (USER, USER)
        elif missing == "CAP_DAC_READ_SEARCH":
            assert not facts["handles_survive"] and missing in server.said
        elif missing == "CAP_NET_RAW":
            assert facts["ports"] == {SERVER: "udp"} and missing in server.said
        else:
            assert source == "server" and missing in server.said
        server.stop()


def test_every_capability_is_explained() -> None:
    text = (UNIT.parents[1] / "docs" / "running.md").read_text()
    assert [one for one in capabilities() if f"| `{one}` |" not in text] == []
