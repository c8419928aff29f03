# SPDX-License-Identifier: BSD-2-Clause
"""The Linux kernel's client mounts our server, and works there as on any file system."""

from __future__ import annotations

import hashlib
import io
import itertools
import random
import shutil
import tarfile
from pathlib import Path

import pytest
from serving import Serving, forget, mounted, serving

from livedma.lab.channel import Command
from livedma.lab.guest import Lab
from scale import IS_FULL, at_scale

pytestmark = pytest.mark.slow

LONG_S = 300.0
MIB = 1 << 20
GIB = 1 << 30


def tree_tar(files: int, seed: int = 1) -> bytes:
    """Directories, files of many sizes and modes, symbolic links: something like a source tree."""
    chance = random.Random(seed)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        directories = ["tree"]
        for number in range(files // 20):
            parent = chance.choice(directories[-30:])
            below = parent if parent.count("/") < 8 else "tree"
            directories.append(f"{below}/dir{number}")
        for name in directories:
            one = tarfile.TarInfo(name)
            one.type, one.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(one)
        for number in range(files):
            one = tarfile.TarInfo(f"{chance.choice(directories)}/file{number}.c")
            one.mode, one.mtime = chance.choice([0o644, 0o600, 0o755]), 1_600_000_000 + number
            if number % 50 == 0:
                one.type, one.linkname = tarfile.SYMTYPE, f"../file{number}"
                tar.addfile(one)
                continue
            data = chance.randbytes(int(chance.expovariate(1 / 3000)))
            one.size = len(data)
            tar.addfile(one, io.BytesIO(data))
    return out.getvalue()


def digests(root: Path) -> dict[str, str]:
    """What every path below is: the digest of a file, where a link leads, or a directory."""
    ret = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            what = f"-> {path.readlink()}"
        elif path.is_dir():
            what = "directory"
        else:
            what = f"{path.stat().st_mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        ret[str(path.relative_to(root))] = what
    return ret


def nothing_left(server: Serving) -> None:
    """No client, session, open file or connection of one."""
    assert server.ask("clients") == []
    assert server.ask("sessions") == []
    assert server.ask("connections") == []


WAYS = [("rdma", 1, 4), ("rdma", 2, 6), ("tcp", 2, 4)]
if IS_FULL:
    WAYS = list(itertools.product(("rdma", "tcp"), (1, 2), (4, 6)))


@pytest.mark.parametrize(("proto", "minor", "version"), WAYS)
def test_mount_use_and_leave(
    wide: Lab, server: Serving, proto: str, minor: int, version: int
) -> None:
    data = random.Random(minor).randbytes(3 * MIB + 77)
    (server.export / "there").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    with mounted(wide.a, proto=proto, minor=minor, version=version) as at:
        assert wide.a.run(f"sha256sum < {at}/there", check=True).stdout.split()[0] == digest
        wide.a.run(f"cp {at}/there {at}/back && sync", check=True, timeout_s=LONG_S)
        assert (server.export / "back").read_bytes() == data
        used = shutil.disk_usage(server.export)
        total = wide.a.run(f"df -B1 --output=size {at} | tail -1", check=True).stdout
        assert abs(int(total) - used.total) <= MIB  # the client counts in blocks of its own
        status = wide.a.run(f"stat -c '%s %h %F' {at}/back", check=True).stdout
        assert status == f"{len(data)} 1 regular file\n"
        mount = wide.a.run(f"grep ' {at} ' /proc/mounts", check=True).stdout
        assert f"vers=4.{minor}," in mount
        assert f"proto={proto}{'6' if version == 6 else ''}," in mount
    nothing_left(server)


def test_a_tree_of_files(wide: Lab, server: Serving) -> None:
    archive = tree_tar(at_scale(5000, 150))
    (server.export / "tree.tar").write_bytes(archive)
    expected_at = server.export.parent / "expected"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(expected_at, filter="tar")
    with mounted(wide.a) as at:
        untar = f"mkdir {at}/work && tar -C {at}/work -xf {at}/tree.tar"
        wide.a.run(untar, check=True, timeout_s=LONG_S)
        expected = digests(expected_at / "tree")
        assert digests(server.export / "work" / "tree") == expected
        forget(wide.a)
        wide.a.run(f"tar -C {at}/work -df {at}/tree.tar", check=True, timeout_s=LONG_S)
        wide.a.run(f"mv {at}/work/tree {at}/work/moved", check=True)
        wide.a.run(f"cp -al {at}/work/moved {at}/work/linked", check=True, timeout_s=LONG_S)
        assert digests(server.export / "work" / "linked") == expected
        for name in ("moved", "linked"):
            files = [p for p in (server.export / "work" / name).rglob("*.c") if not p.is_symlink()]
            assert {path.stat().st_nlink for path in files} == {2}
        wide.a.run(f"rm -r {at}/work", check=True, timeout_s=LONG_S)
        assert not (server.export / "work").exists()
    nothing_left(server)


@pytest.mark.parametrize(
    ("proto", "options"),
    [
        ("rdma", "--direct=1 --bsrange=4k-256k --iodepth=8"),
        ("rdma", "--direct=0 --bsrange=512-64k --fsync=64"),
        ("tcp", "--direct=1 --bsrange=4k-128k --iodepth=8"),
    ][: at_scale(3, 2)],
    ids=["rdma-direct", "rdma-cached", "tcp-direct"][: at_scale(3, 2)],
)
def test_fio_finds_what_it_wrote(wide: Lab, server: Serving, proto: str, options: str) -> None:
    size = f"{at_scale(16, 2)}m"
    with mounted(wide.a, proto=proto) as at:
        job = f"--name=job --directory={at} --numjobs=2 --ioengine=libaio --size={size} {options}"
        check = "--verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=7"
        wide.a.run(f"fio --rw=randrw {job} {check}", check=True, timeout_s=LONG_S)
        forget(wide.a)
        wide.a.run(f"fio --rw=randwrite {job} {check}", check=True, timeout_s=LONG_S)
        forget(wide.a)
        again = "--verify=crc32c --verify_only --verify_fatal=1 --randseed=7"
        wide.a.run(f"fio --rw=randwrite {job} {again}", check=True, timeout_s=LONG_S)


def test_many_entries_in_a_directory(wide: Lab, server: Serving) -> None:
    count = at_scale(10_000, 1000)
    names = {f"entry-{number:05}-{'x' * (number % 90)}" for number in range(count)}
    (server.export / "many").mkdir()
    for name in names:
        (server.export / "many" / name).touch()
    with mounted(wide.a) as at:
        assert set(wide.a.run(f"ls -f -A {at}/many", check=True).stdout.split()) == names
        listed = wide.a.run(f"ls -l {at}/many | wc -l", check=True, timeout_s=LONG_S).stdout
        assert int(listed) == 1 + len(names)
        wide.a.run(f"cd {at}/many && rm entry-000*", check=True, timeout_s=LONG_S)
        left = {name for name in names if name >= "entry-001"}
        assert {path.name for path in (server.export / "many").iterdir()} == left
        assert set(wide.a.run(f"ls -A {at}/many", check=True).stdout.split()) == left


SPARSE = """
import os
fd = os.open("{at}/sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 6 << 30)
os.pwrite(fd, b"beyond four", (5 << 30) + 3)
os.fsync(fd)
assert os.fstat(fd).st_size == 6 << 30
assert os.fstat(fd).st_blocks * 512 < 1 << 20, os.fstat(fd).st_blocks
assert os.pread(fd, 20, (5 << 30)) == bytes(3) + b"beyond four" + bytes(6)
assert os.pread(fd, 100, (6 << 30) - 5) == bytes(5)
if {minor} == 2:
    data = os.lseek(fd, 0, os.SEEK_DATA)
    assert (5 << 30) - (1 << 16) <= data <= (5 << 30) + 3, data
    assert (5 << 30) < os.lseek(fd, data, os.SEEK_HOLE) <= (5 << 30) + (1 << 16)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20, os.fstat(fd).st_blocks
"""


@pytest.mark.parametrize("minor", [2, 1][: at_scale(2, 1)])
def test_a_sparse_file_over_4_gib(wide: Lab, server: Serving, minor: int) -> None:
    with mounted(wide.a, minor=minor) as at:
        wide.a.put(SPARSE.format(at=at, minor=minor).encode(), "/tmp/sparse.py")
        wide.a.run("python3 /tmp/sparse.py", check=True)
    with (server.export / "sparse").open("rb") as file:
        file.seek(5 * GIB + 3)
        assert file.read(11) == b"beyond four"


LOCKER = """
import fcntl, sys
file = open("{at}/locked", "r+b", buffering=0)
for line in sys.stdin:
    kind, start, length, *flags = line.split()
    how = {{"read": fcntl.LOCK_SH, "write": fcntl.LOCK_EX, "none": fcntl.LOCK_UN}}[kind]
    at_once = 0 if flags or kind == "none" else fcntl.LOCK_NB
    try:
        fcntl.lockf(file, how | at_once, int(length), int(start))
        print("done", line.strip(), flush=True)
    except BlockingIOError:
        print("busy", line.strip(), flush=True)
"""


def test_locks_between_guests(wide: Lab, server: Serving) -> None:
    (server.export / "locked").write_bytes(bytes(100))
    with mounted(wide.a) as at, mounted(wide.b):
        for guest in (wide.a, wide.b):
            guest.put(LOCKER.format(at=at).encode(), "/tmp/locker.py")
        start = "python3 /tmp/locker.py"
        with (
            wide.a.command(start, takes_input=True) as a,
            wide.b.command(start, takes_input=True) as b,
        ):

            def ask(who: Command, what: str, answer: str) -> None:
                who.write(f"{what}\n".encode())
                if answer:
                    who.wait_for(f"{answer} {what}", 60)

            ask(a, "write 0 10", "done")
            ask(b, "write 5 10", "busy")
            ask(b, "read 9 1", "busy")
            ask(b, "write 10 10", "done")
            ask(a, "read 10 1", "busy")
            ask(a, "none 5 5", "done")
            ask(b, "write 5 5", "done")
            ask(b, "write 0 5 wait", "")
            ask(a, "write 50 1", "done")
            assert "write 0 5 wait" not in b.text
            ask(a, "none 0 5", "done")
            b.wait_for("done write 0 5 wait", 60)
            ask(a, "read 60 10", "done")
            ask(b, "read 60 10", "done")
            ask(b, "write 65 1", "busy")
            for one in (a, b):
                one.end_input()
                assert one.wait(60).returncode == 0


WRITER = """
import os
fd = os.open("{at}/shared", os.O_RDWR | os.O_CREAT, 0o666)
own = os.open("{at}/own-{name}", os.O_RDWR | os.O_CREAT, 0o666)
block = 8192
for number in range({count}):
    data = ("{name}%07d" % number).encode() * (block // 8)
    os.pwrite(fd, data, (2 * number + {parity}) * block)
    os.pwrite(own, data, number * block)
    if number % 50 == 0:
        os.fsync(fd)
os.close(fd)
os.close(own)
"""


def test_two_guests_write_at_once(wide: Lab, server: Serving) -> None:
    block, count = 8192, at_scale(200, 60)
    (server.export / "shared").touch()
    with mounted(wide.a, options="sync") as at, mounted(wide.b, options="sync"):
        for parity, guest in enumerate((wide.a, wide.b)):
            text = WRITER.format(at=at, name="ab"[parity], parity=parity, count=count)
            guest.put(text.encode(), "/tmp/writer.py")
        with (
            wide.a.command("python3 /tmp/writer.py") as a,
            wide.b.command("python3 /tmp/writer.py") as b,
        ):
            assert (a.wait(LONG_S).returncode, b.wait(LONG_S).returncode) == (0, 0), a.text + b.text
    shared = (server.export / "shared").read_bytes()
    for number in range(count):
        for parity, name in enumerate("ab"):
            data = f"{name}{number:07}".encode() * (block // 8)
            at_byte = (2 * number + parity) * block
            assert shared[at_byte : at_byte + block] == data
            own = (server.export / f"own-{name}").read_bytes()
            assert own[number * block : (number + 1) * block] == data


def test_permissions_and_the_squashed_root(wide: Lab, tmp_path: Path) -> None:
    with serving(wide.host, tmp_path) as server:
        server.export.chmod(0o777)
        (server.export / "roots").write_text("secret")
        (server.export / "roots").chmod(0o600)
        (server.export / "all").write_text("public")
        with mounted(wide.a) as at:

            def fails(command: str, message: str) -> None:
                done = wide.a.run(command)
                assert done.returncode and message in done.stderr, done

            def as_user(uid: int, command: str) -> str:
                return f"setpriv --reuid={uid} --regid={uid} --clear-groups sh -c '{command}'"

            fails(f"cat {at}/roots", "Permission denied")
            assert wide.a.run(f"cat {at}/all", check=True).stdout == "public"
            wide.a.run(f"touch {at}/by-root", check=True)
            assert (server.export / "by-root").stat().st_uid == 65534
            fails(f"chown 0 {at}/by-root", "Operation not permitted")
            wide.a.run(as_user(1234, f"umask 077; echo mine > {at}/mine"), check=True)
            mine = (server.export / "mine").stat()
            assert (mine.st_uid, mine.st_gid, mine.st_mode & 0o777) == (1234, 1234, 0o600)
            assert wide.a.run(as_user(1234, f"cat {at}/mine"), check=True).stdout == "mine\n"
            fails(as_user(1235, f"cat {at}/mine"), "Permission denied")
            fails(as_user(1235, f"echo x >> {at}/mine"), "Permission denied")
            fails(as_user(1235, f"chmod 666 {at}/mine"), "Operation not permitted")
            fails(f"cat {at}/mine", "Permission denied")
            wide.a.run(as_user(1234, f"chmod 640 {at}/mine"), check=True)
            assert (server.export / "mine").stat().st_mode & 0o777 == 0o640
