# SPDX-License-Identifier: BSD-2-Clause
"""What any NFS server has to do right for our client: data, names, locks, attributes.

A scenario takes a `Site`, which knows how to reach a server, and works in a directory of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from livedma.nfs.client import Client, Conflict, OperationFailed
from livedma.nfs.client.client import Connect, Kind
from livedma.nfs.numbers import FileType, Stable, Status
from livedma.rpc.message import AuthSys

T = TypeVar("T")

AT_ONCE = 32
LIMIT_S = 600.0  #: of a scenario, on a slow machine with an emulated server

Scenario = Callable[["Site"], Awaitable[None]]


@dataclass
class Site:
    """A server: where it is, and what it lacks of 4.2: "seek", "allocate", "copy", "xattr"."""

    address: str
    port: int
    transport: Kind | Connect = "tcp"
    lacks: frozenset[str] = frozenset()
    files: int = 1000  #: how many it has to bear, in directories
    entries: int = 10_000  #: and in one of them
    restart: Callable[[], None] | None = None  #: at once, and back again when it returns

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        options = {"patience_s": 120.0, **options}
        made = await Client.connect(self.address, self.port, self.transport, **options)
        async with made:
            yield made


async def gathered(jobs: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs many jobs, some at a time."""
    left = iter(list(enumerate(jobs)))
    results: dict[int, T] = {}

    async def work() -> None:
        for number, job in left:
            results[number] = await job()

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    return [results[number] for number in sorted(results)]


def content(path: str) -> bytes:
    """What a file of that name has in it: its own, and of many lengths."""
    seed = hashlib.blake2b(path.encode()).digest()
    length = int.from_bytes(seed[:2], "big") % 9000
    return (seed * (length // len(seed) + 1))[:length]


@asynccontextmanager
async def directory(client: Client, name: str) -> AsyncIterator[str]:
    """A new directory; with all that is left in it, it is removed."""
    path = f"/{name}"
    await client.mkdir(path)
    try:
        yield path
    finally:
        await remove_tree(client, path)


async def remove_tree(client: Client, path: str) -> None:
    entries = await client.listdir(path)

    async def gone(name: str, is_dir: bool) -> None:
        await (remove_tree if is_dir else _remove)(client, f"{path}/{name}")

    await gathered(
        [
            lambda one=one: gone(one.name, one.stat is not None and one.stat.is_dir)
            for one in entries
        ]
    )
    await client.rmdir(path)


async def _remove(client: Client, path: str) -> None:
    await client.remove(path)


async def write_file(client: Client, path: str, data: bytes, **options: Any) -> None:
    async with await client.open(path, "w", create=True, **options) as file:
        await file.write(0, data)


async def read_file(client: Client, path: str) -> bytes:
    async with await client.open(path) as file:
        return await file.read(0, (await file.stat()).size + 1)


async def failure(awaitable: Awaitable[object]) -> Status:
    with pytest.raises(OperationFailed) as caught:
        await awaitable
    return caught.value.status


async def tree(site: Site, files: int) -> None:
    """Files in directories: written, compared, renamed, linked, removed."""
    async with site.client() as client, directory(client, "tree") as top:
        folders = [f"{top}/d{number:03}" for number in range(max(1, files // 50))]
        await gathered([lambda one=one: client.mkdir(one) for one in folders])
        paths = [f"{folders[number % len(folders)]}/f{number:05}" for number in range(files)]
        await gathered([lambda one=one: write_file(client, one, content(one)) for one in paths])
        async with site.client() as other:
            read = await gathered([lambda one=one: read_file(other, one) for one in paths])
            assert read == [content(one) for one in paths]
        moved = [f"{folders[-1 - number % len(folders)]}/m{number:05}" for number in range(files)]
        pairs = list(zip(paths, moved, strict=True))
        await gathered([lambda old=old, new=new: client.rename(old, new) for old, new in pairs])
        assert await failure(client.stat(paths[0])) == Status.NOENT
        linked = [f"{path}.link" for path in moved]
        pairs = list(zip(moved, linked, strict=True))
        await gathered([lambda old=old, new=new: client.link(old, new) for old, new in pairs])
        stats = await gathered([lambda one=one: client.stat(one) for one in linked])
        assert {stat.links for stat in stats} == {2}
        await gathered([lambda one=one: client.remove(one) for one in moved])
        read = await gathered([lambda one=one: read_file(client, one) for one in linked])
        assert read == [content(one) for one in paths]
        listed = await gathered([lambda one=one: client.listdir(one) for one in folders])
        names = sorted(entry.name for entries in listed for entry in entries)
        assert names == sorted(path.rpartition("/")[2] for path in linked)
        assert await failure(client.rmdir(folders[0])) == Status.NOTEMPTY


async def random_data(site: Site, operations: int, size: int) -> None:
    """Reads and writes at random places, of random lengths, against a model in memory."""
    chance = random.Random(operations)
    model = bytearray()
    async with site.client() as client, directory(client, "random") as top:
        async with await client.open(f"{top}/file", "rw", create=True) as file:
            for number in range(operations):
                offset = chance.randrange(size)
                length = min(chance.choice([1, 13, 4096, 65537, size]), size - offset)
                if chance.random() < 0.5:
                    data = chance.randbytes(length)
                    stable = chance.choice(list(Stable))
                    assert await file.write(offset, data, stable) == length
                    model += bytes(max(0, offset + length - len(model)))
                    model[offset : offset + length] = data
                elif chance.random() < 0.05:
                    await file.truncate(offset)
                    model[offset:] = bytes(max(0, offset - len(model)))
                else:
                    guarded = bytearray(b"\xa5" * (length + 2))
                    with memoryview(guarded)[1:-1] as view:
                        count = await file.read_into(offset, view)
                    assert guarded[1 : 1 + count] == model[offset : offset + length], number
                    assert count == len(model[offset : offset + length])
                    assert guarded[0] == guarded[-1] == 0xA5
            await file.commit()
        assert await read_file(client, f"{top}/file") == model


async def many_entries(site: Site, count: int) -> None:
    """All names of a large directory come, each once."""
    async with site.client() as client, directory(client, "many") as top:
        names = [f"entry-{number:05}-ü" for number in range(count)]
        await gathered([lambda one=one: client.symlink(f"{top}/{one}", one) for one in names])
        entries = await client.listdir(top)
        assert len(entries) == count and {one.name for one in entries} == set(names)
        assert all(one.stat is not None and one.stat.is_symlink for one in entries)
        assert await client.readlink(f"{top}/{names[-1]}") == names[-1]


async def sparse(site: Site) -> None:
    """A file beyond 4 GiB, most of it holes."""
    far = (5 << 30) + 12345
    async with (
        site.client() as client,
        directory(client, "sparse") as top,
        await client.open(f"{top}/file", "rw", create=True) as file,
    ):
        await file.write(far, b"the end")
        await file.write((4 << 30) - 3, b"across")
        assert (await file.stat()).size == far + 7
        assert (await file.stat()).used_bytes < 16 << 20
        assert await file.read(far - 3, 100) == bytes(3) + b"the end"
        assert await file.read((4 << 30) - 4, 8) == b"\0across\0"
        assert await file.read(far + 7, 10) == b""
        if "seek" not in site.lacks:
            data = await file.seek_data(0)
            assert data is not None and (4 << 30) - (1 << 21) <= data < 4 << 30
            assert await file.seek_hole(0) == 0
            assert await file.seek_hole(far) == far + 7
            assert await file.seek_data(far + 7) is None
        if "allocate" not in site.lacks:
            await file.deallocate((4 << 30) - 3, 6)
            assert await file.read((4 << 30) - 4, 8) == bytes(8)
            await file.allocate(far + 7, 4096)
            assert (await file.stat()).size == far + 7 + 4096
        await file.truncate(5)
        assert await file.read(0, 100) == bytes(5)


async def locks(site: Site) -> None:
    """Ranges that two clients want."""
    async with (
        site.client() as one,
        site.client() as two,
        directory(one, "locks") as top,
        await one.open(f"{top}/file", "rw", create=True) as mine,
        await two.open(f"{top}/file", "rw") as theirs,
    ):
        await mine.lock(100, 100)
        with pytest.raises(Conflict) as caught:
            await theirs.lock(150, 1)
        assert (caught.value.start, caught.value.length, caught.value.write) == (100, 100, True)
        with pytest.raises(Conflict):
            await theirs.test_lock(0, None, write=False)
        await theirs.lock(0, 100)
        await theirs.lock(200, None)
        with pytest.raises(Conflict):
            await mine.lock(1 << 40, 1, write=False)
        # A hole in the middle splits a lock; readers share.
        await mine.unlock(140, 20)
        await theirs.lock(140, 20, write=False)
        await mine.lock(140, 20, write=False)
        with pytest.raises(Conflict):
            await mine.lock(140, 20)
        # Owners of one client exclude each other as well.
        with pytest.raises(Conflict):
            await mine.lock(100, 1, owner=b"somebody else")
        # The waiter gets it when it is free.
        waits = asyncio.ensure_future(theirs.lock(100, 40, wait_s=60))
        await asyncio.sleep(0.1)
        assert not waits.done()
        await mine.unlock()
        await waits
        await theirs.close()  # which unlocks all
        await mine.lock()
        await mine.write(0, b"under the lock")
        assert await mine.read(0, 100) == b"under the lock"


async def share_modes(site: Site) -> None:
    """Opens that deny others something."""
    async with site.client() as one, site.client() as two, directory(one, "shares") as top:
        path = f"{top}/file"
        async with await one.open(path, "rw", create=True, deny="w") as mine:
            assert await failure(two.open(path, "w")) == Status.SHARE_DENIED
            async with await two.open(path, "r") as theirs:
                await mine.write(0, b"data")
                assert await theirs.read(0, 10) == b"data"
                assert await failure(theirs.write(0, b"no")) == Status.OPENMODE
        async with await one.open(path, "r") as mine:
            await mine.upgrade(write=True)
            await mine.write(0, b"more")
            assert await failure(two.open(path, "r", deny="w")) == Status.SHARE_DENIED
            await mine.downgrade(read=True)
            assert await failure(mine.write(0, b"no")) == Status.OPENMODE
            await (await two.open(path, "r", deny="w")).close()
        assert await failure(one.open(path, "w", exclusive=True)) == Status.EXIST
        await (await two.open(path, "w", truncate=True)).close()
        assert (await one.stat(path)).size == 0


async def two_writers(site: Site, blocks: int, block_bytes: int = 16384) -> None:
    """Two clients write every other block of one file, at once."""
    async with site.client() as one, site.client() as two, directory(one, "writers") as top:
        async with (
            await one.open(f"{top}/file", "rw", create=True) as mine,
            await two.open(f"{top}/file", "rw") as theirs,
        ):

            def block(number: int) -> bytes:
                return bytes([number % 251 + 1]) * block_bytes

            await gathered(
                [
                    lambda n=n: (mine, theirs)[n % 2].write(n * block_bytes, block(n))
                    for n in range(blocks)
                ]
            )
            await mine.commit()
            await theirs.commit()
            whole = await mine.read(0, blocks * block_bytes + 1)
        assert whole == b"".join(block(number) for number in range(blocks))


async def attributes(site: Site) -> None:
    """Modes, owners, times, room; and which user may do what."""
    async with site.client() as client, directory(client, "attributes") as top:
        path = f"{top}/file"
        await write_file(client, path, b"12345", mode=0o640)
        stat = await client.stat(path)
        assert (stat.kind, stat.size, stat.mode, stat.links) == (FileType.REG, 5, 0o640, 1)
        long_ago_ns = 123456789_000000000
        await client.setattr(path, mode=0o600, owner=1234, group=567, modified_ns=long_ago_ns)
        after = await client.stat(path)
        assert (after.mode, after.owner, after.group) == (0o600, "1234", "567")
        assert after.modified_ns == long_ago_ns
        assert after.change != stat.change and after.fileid == stat.fileid
        await client.setattr(path, accessed_ns="now", modified_ns="now", size=3)
        assert (await client.stat(path)).modified_ns > after.modified_ns
        await client.setattr(top, mode=0o755)
        stranger = AuthSys(0, b"test", 4321, 4321)
        async with site.client(credential=stranger) as other:
            assert await failure(other.open(path)) == Status.ACCESS
            assert await failure(other.mkdir(f"{top}/theirs")) == Status.ACCESS
            assert await failure(other.setattr(path, mode=0o777)) == Status.PERM
            assert await other.access(path, 0x3F) == 0
            assert await other.access(top, 0x1) == 0x1
        await client.mkfifo(f"{top}/fifo")
        kinds = {entry.name: entry.stat.kind for entry in await client.listdir(top) if entry.stat}
        assert kinds == {"file": FileType.REG, "fifo": FileType.FIFO}
        room = await client.statfs(top)
        assert 0 < room.available_bytes <= room.total_bytes
        assert await failure(client.stat(f"{path}/below")) == Status.NOTDIR
        assert await failure(client.mkdir(f"{top}/{'n' * 256}")) == Status.NAMETOOLONG


async def long_paths(site: Site, depth: int = 100) -> None:
    """More directories on the way than a COMPOUND has operations."""
    async with site.client() as client, directory(client, "deep") as top:
        path = top
        for number in range(depth):
            path += f"/{number}"
            await client.mkdir(path)
        await write_file(client, f"{path}/bottom", b"deep")
        await client.rename(f"{path}/bottom", f"{path}/renamed")
        assert await read_file(client, f"{path}/renamed") == b"deep"


async def extras(site: Site) -> None:
    """Extended attributes and copies of 4.2."""
    async with site.client() as client, directory(client, "extras") as top:
        path = f"{top}/file"
        data = random.Random(1).randbytes(300_000)
        await write_file(client, path, data)
        if "copy" not in site.lacks:
            async with (
                await client.open(path) as source,
                await client.open(f"{top}/copy", "rw", create=True) as target,
            ):
                assert await source.copy_to(target, 1000, 5, len(data) - 1000) == len(data) - 1000
                assert await target.read(0, len(data)) == bytes(5) + data[1000:]
        if "xattr" not in site.lacks:
            values = {f"name{number}": bytes([number]) * number for number in range(1, 60)}
            for name, value in values.items():
                await client.setxattr(path, name, value, create=True)
            assert await failure(client.setxattr(path, "name1", b"", create=True)) == Status.EXIST
            assert await failure(client.setxattr(path, "no", b"", replace=True)) == Status.NOXATTR
            assert sorted(await client.listxattrs(path)) == sorted(values)
            for name, value in values.items():
                assert await client.getxattr(path, name) == value
            await client.removexattr(path, "name1")
            assert await failure(client.getxattr(path, "name1")) == Status.NOXATTR


async def many_sessions(site: Site, count: int) -> None:
    """Sessions of one client id and of others, all on one connection."""
    async with site.client(slots=4) as client, directory(client, "sessions") as top:
        sessions = [
            await client.session(2, owner=None if number % 2 else b"owner %d" % number)
            for number in range(count)
        ]
        assert len({session.session_id for session in sessions}) == count
        assert client.connection.made == 1

        async def use(number: int) -> bytes:
            path = f"{top}/{number}"
            async with await sessions[number].open(path, "rw", create=True) as file:
                await asyncio.gather(*(file.write(at * 9000, content(path)) for at in range(8)))
                return await file.read(7 * 9000, 9000)

        read = await gathered([lambda n=n: use(n) for n in range(count)])
        assert read == [content(f"{top}/{number}") for number in range(count)]
        for session in sessions[::2]:
            await session.close()
        assert len(await sessions[1].listdir(top)) == count


async def cut_connections(site: Site, rounds: int) -> None:
    """A session on two connections, one of which is cut again and again in the middle of calls:
    renames that only work once and in order, and writes.
    """
    async with site.client(slots=8) as client, directory(client, "cut") as top:
        second = client.connection_to(site.address, site.port, site.transport)
        await client.through.bind(second)
        await write_file(client, f"{top}/token-0", b"token")

        async def rename_on() -> None:
            for number in range(rounds):
                await client.rename(f"{top}/token-{number}", f"{top}/token-{number + 1}")

        async def write_on() -> None:
            async with await client.open(f"{top}/data", "rw", create=True) as file:
                for number in range(rounds):
                    await file.write(number * 8, number.to_bytes(8, "big"))

        work = asyncio.gather(rename_on(), write_on())
        chance = random.Random(rounds)
        cuts = 0
        while not work.done():
            await asyncio.sleep(chance.uniform(0.01, 0.05))
            transport = chance.choice([client.connection, second]).transport
            if transport is not None:
                transport.close()
                cuts += 1
        await work
        assert cuts and client.identity.recoveries == 0
        names = {entry.name for entry in await client.listdir(top)}
        assert names == {f"token-{rounds}", "data"}
        expected = b"".join(number.to_bytes(8, "big") for number in range(rounds))
        assert await read_file(client, f"{top}/data") == expected


async def restarted(site: Site) -> None:
    """The server restarts under open files and locks, and writes go on."""
    assert site.restart is not None
    async with site.client() as one, site.client() as two, directory(one, "restart") as top:
        async with (
            await one.open(f"{top}/file", "rw", create=True) as file,
            await one.open(f"{top}/locked", "rw", create=True) as locked,
            await two.open(f"{top}/locked", "rw") as theirs,
        ):
            await locked.lock(10, 10)
            await locked.write(10, b"mine", Stable.FILE_SYNC)
            written = 0
            is_back = asyncio.ensure_future(asyncio.to_thread(site.restart))
            while not is_back.done() or written < 50:
                await file.write(written * 4, written.to_bytes(4, "big"), Stable.FILE_SYNC)
                written += 1
            await is_back
            await file.write(written * 4, b"last", Stable.FILE_SYNC)
            assert one.identity.recoveries >= 1
            whole = await file.read(0, written * 4 + 4)
            assert whole == b"".join(n.to_bytes(4, "big") for n in range(written)) + b"last"
            with pytest.raises(Conflict):
                await theirs.lock(15, 1)
            await locked.write(10, b"still", Stable.FILE_SYNC)
            await locked.unlock()
            await theirs.lock(15, 1)
        await write_file(two, f"{top}/after", b"new opens work")


SCENARIOS: dict[str, Scenario] = {
    "tree": lambda site: tree(site, site.files),
    "random data": lambda site: random_data(site, operations=300, size=2 << 20),
    "many entries": lambda site: many_entries(site, site.entries),
    "sparse": sparse,
    "locks": locks,
    "share modes": share_modes,
    "two writers": lambda site: two_writers(site, blocks=256),
    "attributes": attributes,
    "long paths": long_paths,
    "extras": extras,
    "many sessions": lambda site: many_sessions(site, count=20),
    "cut connections": lambda site: cut_connections(site, rounds=200),
}
