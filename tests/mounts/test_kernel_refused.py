# SPDX-License-Identifier: BSD-2-Clause
"""What a kernel's client does while new sessions are refused: those that are there go on, a mount
says at once that it failed, and succeeds as soon as it can.
"""

from __future__ import annotations

import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from serving import ADDRESSES, MOUNT, PATIENCE_S, Serving, mounted, serving

from livedma.lab.guest import Guest, Lab

pytestmark = pytest.mark.slow

#: What docs/control.md quotes.
SAYS = "mount.nfs: mount system call failed"
LOGS = "nfs4_discover_server_trunking unhandled error -121. Exiting with error EIO"
#: Budget for one connection, and not for a second one.
ONE_CONNECTION = ("--window=4MiB", "--mapped=1", "--budget=6MiB")


def try_to_mount(guest: Guest, options: str) -> CompletedProcess[str]:
    """Does not wait for a mount that hangs: the command is killed then."""
    guest.run(f"mkdir -p {MOUNT} && dmesg -C", check=True)
    command = f"timeout -s KILL {PATIENCE_S:.0f} mount -t nfs -o {options} {ADDRESSES[4]}:/ {MOUNT}"
    return guest.run(command, timeout_s=2 * PATIENCE_S)


@pytest.mark.parametrize(
    "options", ["vers=4.2,proto=tcp", "proto=tcp", "vers=4.1,proto=rdma,port=20049"]
)
def test_a_mount_that_is_refused_says_so(wide: Lab, server: Serving, options: str) -> None:
    """Whether or not it may choose the version: it asks for no other one."""
    guest = wide.a
    server.ask("refuse_sessions", refuse=True)
    begun = time.monotonic()
    done = try_to_mount(guest, options)
    print("#####", options, f"{time.monotonic() - begun:.1f} s", done.stderr, flush=True)
    assert done.returncode == 32
    assert done.stderr.strip() == SAYS
    assert LOGS in guest.run("dmesg", check=True).stdout
    server.ask("refuse_sessions", refuse=False)
    done = try_to_mount(guest, options)
    assert not done.returncode, done
    guest.run(f"umount {MOUNT}", check=True, timeout_s=PATIENCE_S)


def test_a_client_that_is_there_works_on_and_comes_back(wide: Lab, server: Serving) -> None:
    """Also when its connection and its session are lost meanwhile: it has files open."""
    with mounted(wide.a) as at:
        server.ask("refuse_sessions", refuse=True)
        for number in (connection["number"] for connection in server.ask("connections")):
            server.ask("refuse_sessions", refuse=True, connection=number)
        wide.a.run(f"echo one > {at}/file && sync {at}/file", check=True, timeout_s=PATIENCE_S)
        assert try_to_mount(wide.b, "vers=4.2,proto=tcp").returncode == 32
        for connection in server.ask("connections"):
            server.ask("cut", connection=connection["number"])
        wide.a.run(f"echo two >> {at}/file && sync {at}/file", check=True, timeout_s=PATIENCE_S)
        assert (server.export / "file").read_text() == "one\ntwo\n"


def test_a_mount_over_rdma_fails_soon_when_the_budget_is_used_up(wide: Lab, tmp_path: Path) -> None:
    """Another client's connection has it all. mount.nfs tries a refused one for 2 min."""
    rdma = "vers=4.2,proto=rdma,port=20049"
    with serving(wide.host, tmp_path, "--squash=none", *ONE_CONNECTION) as server:
        with mounted(wide.a) as at:
            done = try_to_mount(wide.b, rdma)
            assert done.returncode == 32, done  # the command was not killed
            assert server.output.count(" refused ") == 1  # nor did it try again
            assert done.stderr.strip() == SAYS
            assert LOGS in wide.b.run("dmesg", check=True).stdout
            wide.a.run(f"echo one > {at}/file && sync {at}/file", check=True, timeout_s=PATIENCE_S)
        done = try_to_mount(wide.b, rdma)
        assert not done.returncode, done
        wide.b.run(f"umount {MOUNT}", check=True, timeout_s=PATIENCE_S)
