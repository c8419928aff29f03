# SPDX-License-Identifier: BSD-2-Clause
"""The Linux kernel's client with delegations: it serves itself, and sees what others change."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import PATIENCE_S, Serving, mounted, serving

from livedma.lab.guest import Guest, Lab

pytestmark = pytest.mark.slow


@pytest.fixture
def server(wide: Lab, tmp_path: Path) -> Iterator[Serving]:
    with serving(wide.host, tmp_path, "--squash=none", "--delegations") as ret:
        yield ret


def sent(guest: Guest, at: str) -> dict[str, int]:
    """How many requests of each kind the guest has sent for a mount."""
    text = guest.run("cat /proc/self/mountstats", check=True).stdout
    mount = text.split(f" mounted on {at} ")[1].split("\ndevice ")[0]
    return {
        name: int(count) for name, count in re.findall(r"^\s+([A-Z_0-9]+): (\d+) ", mount, re.M)
    }


def cat(guest: Guest, path: str, times: int = 1) -> str:
    loop = f"for n in $(seq {times}); do cat {path}; done"
    return guest.run(loop, check=True, timeout_s=PATIENCE_S).stdout


def delegations(server: Serving) -> dict[str, int]:
    ret: dict[str, int] = server.ask("counters")["delegations"]
    return ret


@pytest.mark.parametrize("minor", [1, 2])
def test_what_is_delegated_is_read_without_the_server(
    wide: Lab, server: Serving, minor: int
) -> None:
    (server.export / "shared").write_bytes(b"first\n")
    (server.export / "local").write_bytes(b"first\n")
    with mounted(wide.a, proto="tcp", minor=minor) as at, mounted(wide.b, proto="tcp"):
        for name in ("shared", "local"):
            assert cat(wide.a, f"{at}/{name}") == "first\n"
        assert delegations(server)["given"] == 2
        before = sent(wide.a, at)
        assert cat(wide.a, f"{at}/shared", 20) == "first\n" * 20
        after = sent(wide.a, at)
        assert {name for name in after if after[name] > before.get(name, 0) + 2} == set()
        # Another client writes: it waits until this one has given its delegation back.
        wide.b.run(f"echo second > {at}/shared", check=True, timeout_s=PATIENCE_S)
        assert cat(wide.a, f"{at}/shared") == "second\n"
        counted = delegations(server)
        assert (counted["recalled"], counted["returned"], counted["local"]) == (1, 1, 0)
        # So does a program beside the server.
        (server.export / "local").write_bytes(b"third\n")
        assert cat(wide.a, f"{at}/local") == "third\n"
        counted = delegations(server)
        assert (counted["recalled"], counted["returned"], counted["local"]) == (2, 2, 1)
        assert counted["revoked"] == 0


def test_a_restart(wide: Lab, tmp_path: Path) -> None:
    """The kernel's leases end with the server; the client looks again once it has noticed."""
    options = ("--squash=none", "--delegations", "--lease=12")
    with (
        serving(wide.host, tmp_path, *options) as server,
        mounted(wide.a, proto="tcp") as at,
    ):
        (server.export / "shared").write_bytes(b"first\n")
        assert cat(wide.a, f"{at}/shared") == "first\n"
        server.kill()
        (server.export / "shared").write_bytes(b"second\n")
        server.start()
        wait_for(lambda: cat(wide.a, f"{at}/shared") == "second\n")
        wide.a.run(f"echo third > {at}/shared", check=True, timeout_s=PATIENCE_S)
        assert (server.export / "shared").read_bytes() == b"third\n"


def test_everybody_sees_what_anybody_changes(wide: Lab, server: Serving) -> None:
    """Both guests read a file and have it delegated; then one of them, or a local program, changes
    it, and the others see that.
    """
    chance = random.Random(7)
    with mounted(wide.a, proto="tcp") as at, mounted(wide.b, proto="tcp"):
        for number in range(16):
            name, before = f"file{number}", f"{chance.random()}\n"
            (server.export / name).write_text(before)
            for guest in (wide.a, wide.b):
                assert cat(guest, f"{at}/{name}") == before
            after = f"{chance.random()} again\n"
            change, expected = chance.choice(
                [
                    (f"echo '{after.strip()}' > {{}}", after),
                    (f"echo '{after.strip()}' >> {{}}", before + after),
                    ("python3 -c 'import os; os.truncate(\"{}\", 5)'", before[:5]),
                    ("chmod 600 {}", before),
                ]
            )
            changer = chance.choice([wide.a, wide.b, None])
            if changer is None:
                command = change.format(server.export / name)
                subprocess.run(command, shell=True, check=True, timeout=PATIENCE_S)
            else:
                changer.run(change.format(f"{at}/{name}"), check=True, timeout_s=PATIENCE_S)
            assert (server.export / name).read_text() == expected
            for guest in (wide.a, wide.b):
                assert cat(guest, f"{at}/{name}") == expected, (number, change, changer)
            mode = f"{(server.export / name).stat().st_mode & 0o777:o}\n"
            for guest in (wide.a, wide.b):
                look = f"stat -c %a {at}/{name}"
                wait_for(lambda guest=guest, look=look, mode=mode: guest.run(look).stdout == mode)
        counted = delegations(server)
        assert counted["given"] >= 32 and counted["recalled"] >= 16
        assert counted["local"] > 0 and counted["revoked"] == 0


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 2 * PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.2)
