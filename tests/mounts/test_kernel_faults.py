# SPDX-License-Identifier: BSD-2-Clause
"""What goes wrong beside and below the kernel's client: it goes on, and so do the others."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import PATIENCE_S, Serving, forget, mounted, serving

from livedma.lab.guest import Guest, Lab
from scale import at_scale

pytestmark = pytest.mark.slow

LONG_S = 240.0
MIB = 1 << 20

# Says for each block that it is on stable storage, once fsync has said so.
APPENDER = """
import fcntl, os, sys
fd = os.open("{at}/{name}", os.O_RDWR | os.O_CREAT, 0o644)
fcntl.lockf(fd, fcntl.LOCK_EX, 100, 0)
for number in range({count}):
    data = b"%08d" % number * 1024
    os.pwrite(fd, data, number * len(data))
    if number % 4 == 3:
        os.fsync(fd)
        print("stable", number, flush=True)
print("end", flush=True)
sys.stdin.read()
"""


def appended(count: int) -> bytes:
    return b"".join(b"%08d" % number * 1024 for number in range(count))


def start_appending(guest: Guest, at: str, name: str, count: int) -> str:
    guest.put(APPENDER.format(at=at, name=name, count=count).encode(), f"/tmp/{name}.py")
    return f"python3 /tmp/{name}.py"


TRY_LOCK = """
import fcntl, os
fd = os.open("{at}/{name}", os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 100, 0)
    print("free")
except BlockingIOError:
    print("locked")
"""


def lock_state(guest: Guest, at: str, name: str) -> str:
    guest.put(TRY_LOCK.format(at=at, name=name).encode(), "/tmp/try.py")
    return guest.run("python3 /tmp/try.py", check=True, timeout_s=LONG_S).stdout.strip()


@pytest.mark.parametrize("proto", ["rdma", "tcp"][: at_scale(2, 1)])
def test_the_server_is_killed_and_comes_back(wide: Lab, tmp_path: Path, proto: str) -> None:
    """No byte is lost that was stable, and a lock is still its owner's.

    A client over RDMA asks again 5 to 10 s after its first attempt to connect failed. Grace is
    longer than that, on any machine, and it ends once both clients have reclaimed.
    """
    count = at_scale(160, 80)
    with (
        serving(wide.host, tmp_path, "--squash=none", "--lease=10", "--grace=120") as server,
        mounted(wide.a, proto=proto) as at,
        mounted(wide.b, proto=proto),
    ):
        command = start_appending(wide.a, at, "log", count)
        with wide.a.command(command, takes_input=True) as appender:
            appender.wait_for("stable 39", LONG_S)
            server.kill()
            stable = int(appender.text.split()[-1])
            server.start()
            assert (server.export / "log").read_bytes()[: (stable + 1) * 8192] == appended(
                stable + 1
            )
            appender.wait_for("end", LONG_S)
            assert lock_state(wide.b, at, "log") == "locked"
            appender.end_input()
            assert appender.wait(PATIENCE_S).returncode == 0
        assert lock_state(wide.b, at, "log") == "free"
        assert (server.export / "log").read_bytes() == appended(count)


def test_connections_are_cut(wide: Lab, server: Serving) -> None:
    count = 240
    with mounted(wide.a) as at:
        command = start_appending(wide.a, at, "log", count)
        with wide.a.command(command, takes_input=True) as appender:
            for stable in (39, 99, 159):
                appender.wait_for(f"stable {stable}", LONG_S)
                for connection in server.ask("connections"):
                    server.ask("cut", connection=connection["number"])
            appender.wait_for("end", LONG_S)
            appender.end_input()
            assert appender.wait(PATIENCE_S).returncode == 0
        assert (server.export / "log").read_bytes() == appended(count)
        assert len(server.ask("sessions")) == 1


@contextmanager
def unplugged(lab: Lab, guest: Guest) -> Iterator[None]:
    """Its cable is out for a while; the guest itself does not see that."""
    with lab.host.netlink() as ip:
        index = ip.link_lookup(ifname=guest.tap)[0]
        ip.link("set", index=index, state="down")
    try:
        yield
    finally:
        with lab.host.netlink() as ip:
            ip.link("set", index=index, state="up")


def test_a_peer_vanishes(wide: Lab, tmp_path: Path) -> None:
    """Its lease ends, its locks are free; the guest beside it does not notice."""
    with serving(wide.host, tmp_path, "--squash=none", "--lease=5", "--grace=5") as server:
        (server.export / "log").touch()
        with mounted(wide.a) as at, mounted(wide.b):
            command = start_appending(wide.b, at, "log", 8)
            with wide.b.command(command, takes_input=True) as appender:
                appender.wait_for("end", LONG_S)
                assert lock_state(wide.a, at, "log") == "locked"
                with unplugged(wide, wide.b):
                    end_s = time.monotonic() + LONG_S
                    while lock_state(wide.a, at, "log") != "free":
                        assert time.monotonic() < end_s
                    data = random.Random(1).randbytes(MIB)
                    (server.export / "there").write_bytes(data)
                    digest = wide.a.run(f"sha256sum < {at}/there", check=True).stdout.split()[0]
                    assert digest == hashlib.sha256(data).hexdigest()
                appender.end_input()
                appender.wait(LONG_S)


@contextmanager
def disk(at: Path, *argv: str) -> Iterator[None]:
    """Something mounted there for a while."""
    at.mkdir(exist_ok=True)
    subprocess.run(["mount", *argv, str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_the_disk_is_full(wide: Lab, tmp_path: Path) -> None:
    with (
        disk(tmp_path / "export", "-t", "tmpfs", "-o", "size=8m", "tmpfs"),
        serving(wide.host, tmp_path, "--squash=none") as server,
        mounted(wide.a) as at,
        mounted(wide.b),
    ):
        (server.export / "small").write_text("it is there")
        for options in ("oflag=direct", "conv=fsync"):
            done = wide.a.run(
                f"dd if=/dev/zero of={at}/big bs=256k count=64 {options}", timeout_s=LONG_S
            )
            assert done.returncode and "No space left on device" in done.stderr, done
            assert wide.b.run(f"cat {at}/small", check=True).stdout == "it is there"
        wide.a.run(f"rm {at}/big && echo more > {at}/small && sync", check=True)
        forget(wide.b)
        assert wide.b.run(f"cat {at}/small", check=True).stdout == "more\n"


def test_the_disk_fails(wide: Lab, tmp_path: Path) -> None:
    """A file system whose disk has become shorter than it was: the block device reports errors."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(image)], check=True)
    with (
        disk(tmp_path / "export", "-o", "loop,errors=continue", str(image)),
        serving(wide.host, tmp_path, "--squash=none") as server,
        mounted(wide.a) as at,
        mounted(wide.b),
    ):
        (server.export / "small").write_text("it is there")
        (server.export / "big").write_bytes(bytes(32 * MIB))
        os.sync()
        assert wide.b.run(f"cat {at}/small", check=True).stdout == "it is there"
        with (server.export / "big").open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.truncate(image, 4 * MIB)
        loop = subprocess.run(
            ["losetup", "-n", "-O", "NAME", "-j", str(image)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        subprocess.run(["losetup", "-c", loop], check=True)
        for command in (
            f"cat {at}/big > /dev/null",
            f"dd if=/dev/urandom of={at}/big bs=1M count=16 seek=8 conv=notrunc,fsync",
        ):
            done = wide.a.run(command, timeout_s=LONG_S)
            assert done.returncode and "Input/output error" in done.stderr, done
        assert wide.b.run(f"cat {at}/small", check=True).stdout == "it is there"
        os.truncate(image, 64 * MIB)
        subprocess.run(["losetup", "-c", loop], check=True)
