# SPDX-License-Identifier: BSD-2-Clause
"""Directories, links, data, holes and extended attributes, byte by byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.needs import needs
from tests.nfs.operating import Desk, asked, attributes, desk, fattr, stateid, u64, xdr
from tests.nfs.stores import ALICE, is_root, make_file

from livedma.nfs.bitmap import bits, decode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.store import Kind, Settings
from livedma.rpc.xdr import Decoder

NO_ATTRIBUTES = fattr({})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as ret:
        yield ret


def change(decoder: Decoder) -> tuple[bool, int, int]:
    return decoder.boolean(), decoder.u64(), decoder.u64()


def test_looking_up(server: Desk) -> None:
    server.store.create_node(server.store.root, b"d", Kind.DIR, Settings(mode=0o755))
    server.do(Op.LOOKUP, xdr(b"d"))
    assert server.ctx.node.kind == Kind.DIR
    assert server.status(Op.LOOKUP, xdr(b"none")) == Status.NOENT
    assert server.status(Op.LOOKUP, xdr(b"..")) == Status.BADNAME
    server.do(Op.LOOKUPP)
    assert server.ctx.node.key == server.store.root.key
    assert server.status(Op.LOOKUPP) == Status.NOENT


def test_creating(server: Desk, tmp_path: Path) -> None:
    mode = fattr({Attribute.MODE: xdr(0o1751)})
    result = server.do(Op.CREATE, xdr(Kind.DIR, b"d") + mode)
    atomic, before, after = change(result)
    assert not atomic and before != after
    assert decode_bitmap(result) == bits(Attribute.MODE)
    assert server.ctx.node.kind == Kind.DIR
    assert (tmp_path / "export" / "d").stat().st_mode & 0o7777 == 0o1751
    server.do(Op.CREATE, xdr(Kind.LNK, b"to/where", b"link") + NO_ATTRIBUTES)
    assert os.readlink(tmp_path / "export" / "d" / "link") == "to/where"
    assert server.do(Op.READLINK).opaque() == b"to/where"
    root = server.store.root
    for kind in (Kind.FIFO, Kind.SOCK):
        server.at(root).do(Op.CREATE, xdr(kind, kind.name.encode()) + NO_ATTRIBUTES)
        assert server.ctx.node.kind == kind
    umask = fattr({Attribute.MODE_UMASK: xdr(0o777, 0o027)})
    result = server.at(root).do(Op.CREATE, xdr(Kind.DIR, b"masked") + umask)
    change(result)
    assert decode_bitmap(result) == bits(Attribute.MODE_UMASK)
    assert server.ctx.node.stat().st_mode & 0o7777 == 0o750


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (xdr(Kind.REG, b"x") + NO_ATTRIBUTES, Status.BADTYPE),
        (xdr(8, b"x") + NO_ATTRIBUTES, Status.BADTYPE),  # NF4ATTRDIR
        (xdr(99, b"x") + NO_ATTRIBUTES, Status.BADTYPE),
        (xdr(Kind.DIR, b"") + NO_ATTRIBUTES, Status.INVAL),
        (xdr(Kind.DIR, b"there") + NO_ATTRIBUTES, Status.EXIST),
        (xdr(Kind.LNK, b"", b"x") + NO_ATTRIBUTES, Status.INVAL),
        (xdr(Kind.LNK, b"a\0b", b"x") + NO_ATTRIBUTES, Status.INVAL),
        (xdr(Kind.LNK, b"x" * 4096, b"x") + NO_ATTRIBUTES, Status.NAMETOOLONG),
        (xdr(Kind.DIR, b"x") + fattr({Attribute.SIZE: u64(0)}), Status.INVAL),
        (xdr(Kind.DIR, b"x") + fattr({14: xdr(1)}), Status.ATTRNOTSUPP),
        (
            xdr(Kind.DIR, b"x") + fattr({Attribute.MODE: xdr(0), Attribute.MODE_UMASK: xdr(0, 0)}),
            Status.INVAL,
        ),
    ],
)
def test_what_cannot_be_created(
    server: Desk, tmp_path: Path, arguments: bytes, status: Status
) -> None:
    (tmp_path / "export" / "there").mkdir()
    with pytest.raises(NfsError) as failure:
        server.do(Op.CREATE, arguments)
    assert failure.value.status == status
    assert os.listdir(tmp_path / "export") == ["there"]


def test_devices_are_made_by_root_alone(server: Desk, tmp_path: Path) -> None:
    needs(is_root(), "acting as others needs root")
    (tmp_path / "export").chmod(0o777)
    arguments = xdr(Kind.CHR, 1, 3, b"null") + NO_ATTRIBUTES
    server.ctx.credential = ALICE
    assert server.status(Op.CREATE, arguments) == Status.PERM
    server.ctx = server.context()
    server.do(Op.CREATE, arguments)
    assert server.ctx.node.stat().st_rdev == os.makedev(1, 3)


def test_removing_renaming_and_linking(server: Desk, tmp_path: Path) -> None:
    root = server.store.root
    file = make_file(server.store, root, b"file")
    server.ctx.saved = file
    assert change(server.at(root).do(Op.LINK, xdr(b"second")))[1:] != (0, 0)
    server.ctx.saved = root
    result = server.do(Op.RENAME, xdr(b"second", b"third"))
    assert change(result)[0] is False and change(result)[0] is False
    change(server.do(Op.REMOVE, xdr(b"file")))
    assert os.listdir(tmp_path / "export") == ["third"]
    server.ctx.saved = None
    assert server.status(Op.LINK, xdr(b"x")) == Status.NOFILEHANDLE
    assert server.status(Op.RENAME, xdr(b"third", b"x")) == Status.NOFILEHANDLE
    assert server.status(Op.REMOVE, xdr(b"none")) == Status.NOENT


def listing(
    server: Desk, *attrs: Attribute, cookie: int = 0, names: int = 0, most: int = 65536
) -> tuple[list[tuple[int, bytes, int, Decoder]], bool]:
    """Entries (cookie, name, which attributes, their values) and whether these are the last."""
    arguments = u64(cookie) + bytes(8) + xdr(names, most) + asked(*attrs)
    result = server.do(Op.READDIR, arguments)
    assert result.left <= most
    assert result.fixed(8) == bytes(8)
    ret = []
    while result.boolean():
        at, name = result.u64(), result.opaque()
        ret.append((at, name, *attributes(result)))
    is_end = result.boolean()
    result.finish()
    return ret, is_end


def fill(tmp_path: Path, count: int) -> set[bytes]:
    names = {b"entry-%d" % number for number in range(count)}
    for name in names:
        (tmp_path / "export" / os.fsdecode(name)).touch()
    return names


def test_listing_with_attributes(server: Desk, tmp_path: Path) -> None:
    names = fill(tmp_path, 5)
    entries, is_end = listing(
        server, Attribute.TYPE, Attribute.FILEHANDLE, Attribute.FILEID, Attribute.RDATTR_ERROR
    )
    assert is_end and {name for _, name, _, _ in entries} == names
    for _, name, named, values in entries:
        node = server.name(name)
        assert named == bits(
            Attribute.TYPE, Attribute.FILEHANDLE, Attribute.FILEID, Attribute.RDATTR_ERROR
        )
        assert (values.u32(), values.u32()) == (Kind.REG, 0)
        assert values.opaque() == node.handle
        assert values.u64() == node.key[1]


def test_listing_without_looking_at_files(server: Desk, tmp_path: Path) -> None:
    fill(tmp_path, 3)
    entries, _ = listing(
        server, Attribute.RDATTR_ERROR, Attribute.FILEID, Attribute.MOUNTED_ON_FILEID
    )
    for _, name, named, values in entries:
        assert named == bits(Attribute.RDATTR_ERROR, Attribute.FILEID, Attribute.MOUNTED_ON_FILEID)
        assert values.u32() == 0
        assert values.u64() == values.u64() == server.name(name).key[1]
    entries, is_end = listing(server)
    assert is_end and [named for _, _, named, _ in entries] == [0, 0, 0]


def test_an_empty_directory(server: Desk) -> None:
    assert listing(server, Attribute.TYPE) == ([], True)
    assert listing(server, most=16) == ([], True)


@pytest.mark.parametrize("most", [120, 1000, 8192])
def test_every_entry_comes_once_in_pieces(server: Desk, tmp_path: Path, most: int) -> None:
    names = fill(tmp_path, 300)
    seen: list[bytes] = []
    cookie, is_end = 0, False
    while not is_end:
        entries, is_end = listing(
            server, Attribute.TYPE, Attribute.FILEID, cookie=cookie, most=most
        )
        assert entries
        seen += [name for _, name, _, _ in entries]
        cookie = entries[-1][0]
        assert cookie > 2
    assert len(seen) == 300 and set(seen) == names


def test_cookies_stay_while_entries_come_and_go(server: Desk, tmp_path: Path) -> None:
    names = fill(tmp_path, 300)
    entries, _ = listing(server, most=3000)
    first = {name for _, name, _, _ in entries}
    for name in list(first):  # As `rm -r` does.
        server.do(Op.REMOVE, xdr(name))
    for number in range(50):
        (tmp_path / "export" / f"new-{number}").touch()
    rest, cookie, is_end = set(), entries[-1][0], False
    while not is_end:
        entries, is_end = listing(server, cookie=cookie, most=3000)
        rest |= {name for _, name, _, _ in entries}
        cookie = entries[-1][0]
    assert rest >= names - first
    assert not rest & first


def test_limits_of_a_listing(server: Desk, tmp_path: Path) -> None:
    fill(tmp_path, 10)
    assert len(listing(server, names=1)[0]) == 1  # A hint that is too small for any.
    assert len(listing(server, names=59)[0]) == 2
    for most in (0, 15, 16, 40):
        arguments = u64(0) + bytes(8) + xdr(0, most) + asked(Attribute.FILEID)
        assert server.status(Op.READDIR, arguments) == Status.TOOSMALL
    entries, is_end = listing(server, most=16 + 4 + 8 + 12 + 8)
    assert (len(entries), is_end) == (1, False)


@pytest.mark.parametrize(
    ("cookie", "verifier", "status"),
    [
        (1, bytes(8), Status.BAD_COOKIE),
        (2, bytes(8), Status.BAD_COOKIE),
        (1 << 63, bytes(8), Status.BAD_COOKIE),
        ((1 << 64) - 1, bytes(8), Status.BAD_COOKIE),
        (0, b"verifier", Status.BAD_COOKIE),
        (1000, b"verifier", Status.NOT_SAME),
    ],
)
def test_bad_cookies(server: Desk, cookie: int, verifier: bytes, status: Status) -> None:
    assert server.status(Op.READDIR, u64(cookie) + verifier + xdr(0, 4096, 0)) == status


def test_listing_what_is_no_directory(server: Desk) -> None:
    file = make_file(server.store, server.store.root, b"file")
    arguments = u64(0) + bytes(8) + xdr(0, 4096, 0)
    assert server.at(file).status(Op.READDIR, arguments) == Status.NOTDIR
    write_only = u64(0) + bytes(8) + xdr(0, 4096) + asked(Attribute.TIME_MODIFY_SET)
    assert server.at(server.store.root).status(Op.READDIR, write_only) == Status.INVAL


def test_an_entry_whose_attributes_cannot_be_had(server: Desk, tmp_path: Path) -> None:
    needs(is_root(), "acting as others needs root")
    directory = tmp_path / "export" / "d"
    directory.mkdir()
    (directory / "file").touch()
    directory.chmod(0o744)  # To be read, not to be entered.
    server.at(server.name(b"d")).ctx.credential = ALICE
    [(_, name, named, values)], _ = listing(server, Attribute.TYPE, Attribute.RDATTR_ERROR)
    assert (name, named, values.u32()) == (b"file", bits(Attribute.RDATTR_ERROR), Status.ACCESS)
    arguments = u64(0) + bytes(8) + xdr(0, 4096) + asked(Attribute.TYPE)
    assert server.status(Op.READDIR, arguments) == Status.ACCESS


@pytest.mark.slow
def test_ten_thousand_entries(server: Desk, tmp_path: Path) -> None:
    names = fill(tmp_path, 10_000)
    seen: set[bytes] = set()
    cookie, is_end, calls = 0, False, 0
    attrs = (
        Attribute.TYPE,
        Attribute.CHANGE,
        Attribute.SIZE,
        Attribute.FILEHANDLE,
        Attribute.MODE,
        Attribute.OWNER,
    )
    while not is_end:
        entries, is_end = listing(server, *attrs, cookie=cookie, most=1 << 20)
        seen |= {name for _, name, _, _ in entries}
        cookie, calls = entries[-1][0], calls + 1
    assert seen == names and calls <= 3


def test_reading_and_writing(server: Desk) -> None:
    file = make_file(server.store, server.store.root, b"file")
    server.at(file)
    for stable in (0, 1, 2):
        before = server.store.change(file)
        result = server.do(Op.WRITE, stateid() + u64(stable) + xdr(stable, b"data"))
        assert (result.u32(), result.u32()) == (4, stable)
        assert result.fixed(8) == server.store.verifier
        assert server.store.change(file) != before
    result = server.do(Op.READ, stateid() + u64(1) + xdr(100))
    assert (result.boolean(), result.opaque()) == (True, b"ddata")
    result = server.do(Op.READ, stateid() + u64(0) + xdr(3))
    assert (result.boolean(), result.opaque()) == (False, b"ddd")
    assert server.do(Op.COMMIT, u64(0) + xdr(0)).fixed(8) == server.store.verifier
    assert server.status(Op.COMMIT, u64((1 << 64) - 1) + xdr(2)) == Status.INVAL
    far = stateid() + u64((1 << 64) - 1) + xdr(0, b"data")
    assert server.status(Op.WRITE, far) == Status.INVAL
    assert server.status(Op.WRITE, stateid() + u64(1 << 63) + xdr(0, b"data")) == Status.FBIG


def test_a_read_is_limited(server: Desk) -> None:
    file = make_file(server.store, server.store.root, b"file", b"x" * (3 << 20))
    result = server.at(file).do(Op.READ, stateid() + u64(0) + xdr(0xFFFFFFFF))
    assert result.boolean() is False
    assert len(result.opaque()) == 1 << 20


def test_data_of_what_has_none(server: Desk) -> None:
    root = server.store.root
    for kind, status in (
        (Kind.DIR, Status.ISDIR),
        (Kind.LNK, Status.SYMLINK),
        (Kind.FIFO, Status.WRONG_TYPE),
    ):
        node, _ = server.store.create_node(
            root, kind.name.encode(), kind, Settings(mode=0o644), b"to"
        )
        server.at(node)
        assert server.status(Op.READ, stateid() + u64(0) + xdr(1)) == status
        assert server.status(Op.WRITE, stateid() + u64(0) + xdr(0, b"x")) == status
        assert server.status(Op.COMMIT, u64(0) + xdr(0)) == status
        assert server.status(Op.SEEK, stateid() + u64(0) + xdr(0)) == status
        assert server.status(Op.ALLOCATE, stateid() + u64(0, 1)) == status
        if kind != Kind.LNK:
            assert server.status(Op.READLINK) == Status.WRONG_TYPE


def test_seeking_and_holes(server: Desk) -> None:
    file = make_file(server.store, server.store.root, b"file")
    server.at(file)
    server.do(Op.ALLOCATE, stateid() + u64(0, 1 << 20))
    assert file.stat().st_size == 1 << 20
    server.do(Op.WRITE, stateid() + u64(1 << 19) + xdr(2, b"x" * 4096))
    server.do(Op.DEALLOCATE, stateid() + u64(0, 1 << 19))
    result = server.do(Op.SEEK, stateid() + u64(0) + xdr(0))
    assert (result.boolean(), result.u64()) == (False, 1 << 19)
    result = server.do(Op.SEEK, stateid() + u64(0) + xdr(1))
    assert (result.boolean(), result.u64()) == (False, 0)
    assert server.status(Op.SEEK, stateid() + u64(1 << 20) + xdr(0)) == Status.NXIO
    assert server.status(Op.SEEK, stateid() + u64(0) + xdr(2)) == Status.UNION_NOTSUPP
    for op in (Op.ALLOCATE, Op.DEALLOCATE):
        assert server.status(op, stateid() + u64(1, (1 << 64) - 1)) == Status.INVAL
        assert server.status(op, stateid() + u64(1, 0)) == Status.INVAL


def test_copying(server: Desk, tmp_path: Path) -> None:
    root = server.store.root
    source = make_file(server.store, root, b"source", b"0123456789")
    target = make_file(server.store, root, b"target")
    server.ctx.saved = source
    states = stateid() + stateid()

    def copy(source_at: int, target_at: int, count: int, servers: int = 0) -> bytes:
        return states + u64(source_at, target_at, count) + xdr(1, 1, servers)

    result = server.at(target).do(Op.COPY, copy(2, 1, 5))
    assert (result.u32(), result.u64(), result.u32()) == (0, 5, 0)
    assert result.fixed(8) == server.store.verifier
    assert (result.boolean(), result.boolean()) == (True, True)
    assert (tmp_path / "export" / "target").read_bytes() == b"\x0023456"
    assert server.status(Op.COPY, copy(8, 0, 5)) == Status.INVAL
    assert server.status(Op.COPY, copy(0, 0, 1, 1)) == Status.NOTSUPP
    server.ctx.saved = target
    assert server.status(Op.COPY, copy(0, 3, 4)) == Status.INVAL  # Onto itself.
    server.do(Op.COPY, copy(0, 3, 3))
    server.ctx.saved = root
    assert server.status(Op.COPY, copy(0, 0, 1)) == Status.ISDIR
    server.ctx.saved = None
    assert server.status(Op.COPY, copy(0, 0, 1)) == Status.NOFILEHANDLE


def test_extended_attributes(server: Desk) -> None:
    server.at(make_file(server.store, server.store.root, b"file"))
    assert server.status(Op.GETXATTR, xdr(b"k")) == Status.NOXATTR
    change(server.do(Op.SETXATTR, xdr(1, b"k", b"value")))
    assert server.status(Op.SETXATTR, xdr(1, b"k", b"value")) == Status.EXIST
    assert server.status(Op.SETXATTR, xdr(2, b"none", b"value")) == Status.NOXATTR
    server.do(Op.SETXATTR, xdr(0, b"longer-name", b""))
    assert server.do(Op.GETXATTR, xdr(b"k")).opaque() == b"value"

    def names(cookie: int, most: int) -> tuple[int, list[bytes], bool]:
        result = server.do(Op.LISTXATTRS, u64(cookie) + xdr(most))
        return result.u64(), result.array(Decoder.opaque), result.boolean()

    assert names(0, 8192) == (2, [b"k", b"longer-name"], True)
    assert names(0, 24) == (1, [b"k"], False)
    assert names(1, 32) == (2, [b"longer-name"], True)
    assert names(2, 16) == (2, [], True)
    assert server.status(Op.LISTXATTRS, u64(3) + xdr(8192)) == Status.BAD_COOKIE
    assert server.status(Op.LISTXATTRS, u64(1) + xdr(31)) == Status.TOOSMALL
    assert server.status(Op.LISTXATTRS, u64(2) + xdr(15)) == Status.TOOSMALL
    change(server.do(Op.REMOVEXATTR, xdr(b"k")))
    assert server.status(Op.REMOVEXATTR, xdr(b"k")) == Status.NOXATTR
