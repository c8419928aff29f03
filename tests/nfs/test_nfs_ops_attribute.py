# SPDX-License-Identifier: BSD-2-Clause
"""GETATTR, SETATTR, VERIFY, NVERIFY and ACCESS, byte by byte."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.needs import needs
from tests.nfs.operating import Desk, asked, attributes, desk, fattr, stateid, u64, xdr
from tests.nfs.stores import ALICE, is_root, make_file

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.attributes import EXCLUSIVE_SETTABLE, encode_attributes, supported
from livedma.nfs.server.store import Kind, Settings
from livedma.rpc.xdr import Decoder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path) as ret:
        yield ret


def get(server: Desk, *attrs: Attribute) -> Decoder:
    named, values = attributes(server.do(Op.GETATTR, asked(*attrs)))
    assert named == bits(*attrs)
    return values


def test_supported_attributes(server: Desk) -> None:
    values = get(server, Attribute.SUPPORTED_ATTRS, Attribute.SUPPATTR_EXCLCREAT)
    everything, exclusive = decode_bitmap(values), decode_bitmap(values)
    required = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75)  # RFC 8881 §5.6
    assert everything & bits(*required) == bits(*required)
    assert everything == supported(server.server, 2)
    assert exclusive == EXCLUSIVE_SETTABLE & everything
    assert not exclusive & bits(Attribute.TIME_ACCESS_SET, Attribute.TIME_MODIFY_SET)
    server.ctx.minor = 1
    older = decode_bitmap(get(server, Attribute.SUPPORTED_ATTRS))
    assert everything & ~older == bits(79, 81, 82)


NOT_SERVED = {
    *(Attribute.ACL, Attribute.ARCHIVE, Attribute.FS_LOCATIONS, Attribute.HIDDEN),
    *(Attribute.MIMETYPE, Attribute.QUOTA_AVAIL_HARD, Attribute.QUOTA_AVAIL_SOFT),
    *(Attribute.QUOTA_USED, Attribute.SYSTEM, Attribute.TIME_BACKUP),
}


def test_every_supported_attribute_can_be_got(server: Desk) -> None:
    node = make_file(server.store, server.store.root, b"file", b"x" * 5000)
    for attr in set(Attribute) - NOT_SERVED:
        if attr in (Attribute.TIME_ACCESS_SET, Attribute.TIME_MODIFY_SET, Attribute.MODE_UMASK):
            assert server.at(node).status(Op.GETATTR, asked(attr)) == Status.INVAL
        else:
            named, values = attributes(server.at(node).do(Op.GETATTR, asked(attr)))
            assert named == bits(attr) and values.left > 0


def test_what_there_is_not_is_left_out(server: Desk) -> None:
    # Labels (80) and noise among them.
    wanted = bits(Attribute.TYPE, *NOT_SERVED, 80, 200, 1000)
    named, values = attributes(server.do(Op.GETATTR, encode_bitmap(wanted)))
    assert (named, values.u32(), values.left) == (bits(Attribute.TYPE), Kind.DIR, 0)


def test_values_are_those_of_the_file(server: Desk, tmp_path: Path) -> None:
    needs(is_root(), "giving files away needs root")
    node = make_file(server.store, server.store.root, b"file", b"x" * 5000)
    path = tmp_path / "export" / "file"
    os.chown(path, 1001, 4294967294)
    path.chmod(0o6751)
    os.link(path, path.with_name("second"))
    os.utime(path, ns=(-1, 1_234_567_890_123_456_789))
    status = path.stat()
    values = get(
        server.at(node),
        *(
            Attribute.TYPE,
            Attribute.CHANGE,
            Attribute.SIZE,
            Attribute.FILEHANDLE,
            Attribute.FILEID,
            Attribute.MODE,
        ),
        *(
            Attribute.NUMLINKS,
            Attribute.OWNER,
            Attribute.OWNER_GROUP,
            Attribute.RAWDEV,
            Attribute.SPACE_USED,
        ),
        *(
            Attribute.TIME_ACCESS,
            Attribute.TIME_METADATA,
            Attribute.TIME_MODIFY,
            Attribute.MOUNTED_ON_FILEID,
        ),
    )
    assert values.u32() == Kind.REG
    assert values.u64() == server.store.change(node)
    assert values.u64() == 5000
    assert values.opaque() == node.handle
    assert values.u64() == status.st_ino
    assert values.u32() == 0o6751
    assert values.u32() == 2
    assert (values.opaque(), values.opaque()) == (b"1001", b"4294967294")
    assert (values.u32(), values.u32()) == (0, 0)
    assert values.u64() == status.st_blocks * 512
    assert (values.i64(), values.u32()) == (-1, 999_999_999)
    assert values.i64() * 10**9 + values.u32() == status.st_ctime_ns
    assert (values.i64(), values.u32()) == (1_234_567_890, 123_456_789)
    assert values.u64() == status.st_ino
    values.finish()


def test_values_of_the_filesystem(server: Desk, tmp_path: Path) -> None:
    values = get(
        server,
        *(
            Attribute.FILES_TOTAL,
            Attribute.MAXNAME,
            Attribute.MAXREAD,
            Attribute.MAXWRITE,
            Attribute.SPACE_TOTAL,
        ),
        Attribute.TIME_DELTA,
    )
    filesystem = os.statvfs(tmp_path)
    assert values.u64() == filesystem.f_files
    assert values.u32() == 255
    assert (values.u64(), values.u64()) == (1 << 20, 1 << 20)
    assert values.u64() == filesystem.f_blocks * filesystem.f_frsize
    assert (values.i64(), values.u32()) == (0, 1)


def test_a_device_has_its_numbers(server: Desk) -> None:
    needs(is_root(), "making a device needs root")
    node, _ = server.store.create_node(
        server.store.root, b"dev", Kind.BLK, Settings(mode=0o600), device=(259, 70000)
    )
    values = get(server.at(node), Attribute.TYPE, Attribute.RAWDEV)
    assert (values.u32(), values.u32(), values.u32()) == (Kind.BLK, 259, 70000)


def set_(server: Desk, values: dict[Attribute, bytes]) -> tuple[Status, int]:
    try:
        done = server.do(Op.SETATTR, stateid() + fattr(values))
    except NfsError as failure:
        return failure.status, decode_bitmap(Decoder(failure.body))
    return Status.OK, decode_bitmap(done)


def test_setting(server: Desk) -> None:
    needs(is_root(), "giving files away needs root")
    node = make_file(server.store, server.store.root, b"file", b"x" * 10)
    wanted = {
        Attribute.SIZE: u64(4),
        Attribute.MODE: xdr(0o4755),
        Attribute.OWNER: xdr(b"1001"),
        Attribute.OWNER_GROUP: xdr(b"root@localdomain"),
        Attribute.TIME_ACCESS_SET: xdr(0),
        Attribute.TIME_MODIFY_SET: xdr(1) + struct.pack(">qI", -2, 5),
    }
    assert set_(server.at(node), wanted) == (Status.OK, bits(*wanted))
    status = node.stat()
    assert (status.st_size, status.st_mode & 0o7777) == (4, 0o4755)
    assert (status.st_uid, status.st_gid) == (1001, 0)
    assert status.st_mtime_ns == -2 * 10**9 + 5
    assert status.st_atime_ns > 1_600_000_000 * 10**9


@pytest.mark.parametrize(
    ("values", "status"),
    [
        ({Attribute.TYPE: xdr(1)}, Status.INVAL),
        ({Attribute.TIME_ACCESS: xdr(0, 0, 0)}, Status.INVAL),
        ({Attribute.MODE_UMASK: xdr(0o777, 0o22)}, Status.INVAL),
        ({12: xdr(0)}, Status.ATTRNOTSUPP),
        ({14: xdr(1), Attribute.MODE: xdr(0o644)}, Status.ATTRNOTSUPP),
        ({200: xdr(1)}, Status.ATTRNOTSUPP),
        ({Attribute.MODE: xdr(0o10000)}, Status.INVAL),
        ({Attribute.MODE: b""}, Status.BADXDR),
        ({Attribute.MODE: xdr(0o644, 0)}, Status.BADXDR),
        ({Attribute.OWNER: xdr(b"nobody-has-this-name")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr(b"")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr(b"@domain")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr(b"4294967295")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr(b"99999999999")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr(b"a\0b")}, Status.BADOWNER),
        ({Attribute.OWNER_GROUP: xdr(b"-1")}, Status.BADOWNER),
        ({Attribute.OWNER: xdr("\u0661".encode())}, Status.BADOWNER),  # A digit, if not ours.
        ({Attribute.OWNER: xdr(b"\xff")}, Status.INVAL),
        ({Attribute.TIME_MODIFY_SET: xdr(1, 0, 0, 10**9)}, Status.INVAL),
        ({Attribute.TIME_MODIFY_SET: xdr(2)}, Status.BADXDR),
        ({Attribute.SIZE: u64(1 << 63)}, Status.FBIG),
    ],
)
def test_what_cannot_be_set(server: Desk, values: dict[Attribute, bytes], status: Status) -> None:
    node = make_file(server.store, server.store.root, b"file", b"x")
    before = node.stat()
    assert set_(server.at(node), values) == (status, 0)
    after = node.stat()
    assert (before.st_mode, before.st_uid, before.st_gid) == (
        after.st_mode,
        after.st_uid,
        after.st_gid,
    )


def test_what_was_set_before_a_failure_is_told(server: Desk) -> None:
    needs(is_root(), "acting as others needs root")
    node = make_file(server.store, server.store.root, b"file", b"x" * 10)
    server.store.setattr(node, Settings(uid=1001, mode=0o644))
    server.ctx.credential = ALICE
    wanted = {Attribute.SIZE: u64(3), Attribute.OWNER: xdr(b"1002"), Attribute.MODE: xdr(0o600)}
    assert set_(server.at(node), wanted) == (Status.PERM, bits(Attribute.SIZE))
    assert (node.stat().st_size, node.stat().st_mode & 0o777) == (3, 0o644)


def test_only_files_have_a_size_to_set(server: Desk) -> None:
    fifo, _ = server.store.create_node(server.store.root, b"f", Kind.FIFO, Settings())
    for node, status in ((server.store.root, Status.ISDIR), (fifo, Status.WRONG_TYPE)):
        assert set_(server.at(node), {Attribute.SIZE: u64(0)}) == (status, 0)


def test_verifying(server: Desk) -> None:
    node = make_file(server.store, server.store.root, b"file", b"x" * 10)
    right, wrong = fattr({Attribute.SIZE: u64(10)}), fattr({Attribute.SIZE: u64(11)})
    server.at(node)
    assert server.status(Op.VERIFY, right) == server.status(Op.NVERIFY, wrong) == Status.OK
    assert server.status(Op.VERIFY, wrong) == Status.NOT_SAME
    assert server.status(Op.NVERIFY, right) == Status.SAME
    for op in (Op.VERIFY, Op.NVERIFY):
        assert server.status(op, fattr({12: xdr(0)})) == Status.ATTRNOTSUPP
        assert server.status(op, fattr({Attribute.RDATTR_ERROR: xdr(0)})) == Status.INVAL
        assert server.status(op, fattr({Attribute.TIME_MODIFY_SET: xdr(0)})) == Status.INVAL
    assert server.status(Op.VERIFY, fattr({Attribute.SIZE: b""})) == Status.NOT_SAME
    everything = supported(server.server, 2) & ~bits(
        Attribute.RDATTR_ERROR,
        Attribute.TIME_ACCESS_SET,
        Attribute.TIME_MODIFY_SET,
        Attribute.MODE_UMASK,
    )
    # Free space may change under a test at any time.
    everything &= ~bits(21, 22, 23, 42, 43, 44)
    mine = encode_attributes(server.server, node, everything, 2)
    assert server.status(Op.VERIFY, mine) == Status.OK


def test_access(server: Desk) -> None:
    needs(is_root(), "acting as others needs root")
    node = make_file(server.store, server.store.root, b"file")
    server.at(node).ctx.credential = ALICE
    result = server.do(Op.ACCESS, xdr(0x3F))
    assert (result.u32(), result.u32()) == (0x2D, 0x01)
    result = server.do(Op.ACCESS, xdr(0x1C0))
    assert (result.u32(), result.u32()) == (0x1C0, 0x140)
    assert server.status(Op.ACCESS, xdr(0x200)) == Status.INVAL
    server.ctx.minor = 1
    assert server.status(Op.ACCESS, xdr(0x40)) == Status.INVAL
