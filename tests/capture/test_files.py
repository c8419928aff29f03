# SPDX-License-Identifier: BSD-2-Clause
"""The file readers: every variant gives the same packets; damage gives one clear sentence."""

import contextlib
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import capture_bytes as cb
import pytest

from livedma._native.files import FileReader
from livedma._native.wire import Batch, encode
from livedma.capture.files import read
from livedma.errors import CaptureFileError

SEND_ONLY, WRITE_ONLY, ACK = 0x04, 0x0A, 0x11
START_NS = 1_700_000_000_123_456_000


def ethernet(packet: bytes) -> bytes:
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    return bytes.fromhex("020000000002 020000000001") + kind + packet


def make_packets() -> list[bytes]:
    """From their IP headers on: IPv4 and IPv6, with and without payload."""
    four = {"src": "10.0.0.1", "dst": "10.0.0.2"}
    six = {"src": "fd00::1", "dst": "fd00::2"}
    reth = {"va": 0x1000, "rkey": 7, "length": 5}
    return [
        encode(SEND_ONLY, payload=b"hello, world", psn=1, dest_qp=17, **four),
        encode(WRITE_ONLY, payload=b"five!", psn=2, dest_qp=17, reth=reth, **four),
        encode(ACK, psn=2, dest_qp=18, aeth={"syndrome": 0x1F, "msn": 2}, **six),
        encode(SEND_ONLY, payload=bytes(1024), psn=3, dest_qp=17, **six),
    ]


PACKETS = make_packets()
FRAMES = [cb.Frame(START_NS + i * 1_000_000, ethernet(p)) for i, p in enumerate(PACKETS)]


def rows(batch: Batch) -> list[dict[str, Any]]:
    return [json.loads(line) for line in batch.json(1, {}).splitlines()]


def read_all(path: Path | str, capacity: int = 2048) -> list[dict[str, Any]]:
    with read(path, capacity) as file:
        found = [row for batch in file for row in rows(batch)]
    for row in found:
        del row["n"]
    return found


@pytest.fixture
def show(tmp_path: Path) -> Iterator[Any]:
    """Writes bytes to a file and reads them back as packets."""

    def show_(data: bytes, capacity: int = 2048) -> list[dict[str, Any]]:
        path = tmp_path / "capture"
        path.write_bytes(data)
        return read_all(path, capacity)

    return show_


def error_of(path: Path) -> str:
    with pytest.raises(CaptureFileError) as caught:
        read_all(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.fixture
def complain(tmp_path: Path) -> Any:
    def complain_(data: bytes) -> str:
        path = tmp_path / "capture"
        path.write_bytes(data)
        return error_of(path)

    return complain_


VARIANTS = {
    f"{name}-{order}": cb.pcap(FRAMES, order, magic)
    for name, magic in (("micro", cb.MICRO), ("nano", cb.NANO), ("modified", cb.MODIFIED))
    for order in "<>"
} | {f"pcapng-{order}": cb.pcapng(FRAMES, order) for order in "<>"}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_gives_the_same_packets(show: Any, name: str) -> None:
    found = show(VARIANTS[name])
    directions = {row.pop("direction", None) for row in found}
    assert directions == {"tx" if name.startswith("modified") else None}
    assert found == show(VARIANTS["micro-<"])
    assert [row["time_ns"] for row in found] == [frame.time_ns for frame in FRAMES]
    assert [row["psn"] for row in found] == [1, 2, 2, 3]
    assert all(row["icrc_ok"] and "error" not in row for row in found)


@pytest.mark.parametrize("write", [cb.pcap, cb.pcapng])
@pytest.mark.parametrize(
    ("link", "change", "count"),
    [
        (cb.LINUX_SLL, cb.cooked, 4),
        (cb.LINUX_SLL2, cb.cooked2, 4),
        (cb.RAW, lambda frame: frame[14:], 4),
        (12, lambda frame: frame[14:], 4),
        (cb.IPV4, lambda frame: frame[14:], 2),
        (cb.IPV6, lambda frame: frame[14:], 2),
    ],
)
def test_every_link_type_gives_the_same_packets(
    show: Any, write: Any, link: int, change: Any, count: int
) -> None:
    frames = {cb.IPV4: FRAMES[:2], cb.IPV6: FRAMES[2:]}.get(link, FRAMES)
    found = show(write([f._replace(data=change(f.data)) for f in frames], link=link))
    wanted = show(write(frames))
    for row in found + wanted:
        del row["length"]
    assert len(found) == count
    assert found == wanted


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    ("resolution", "units_per_s"),
    [(None, 10**6), (3, 10**3), (6, 10**6), (9, 10**9), (12, 10**12), (0x80 | 20, 2**20), (0, 1)],
)
def test_time_resolutions(show: Any, order: str, resolution: int | None, units_per_s: int) -> None:
    units = 1_700_000 * units_per_s + units_per_s // 4
    for offset_s in (None, 1000, -1000):
        data = cb.section(order) + cb.interface(order, resolution=resolution, offset_s=offset_s)
        (row,) = show(data + cb.enhanced(FRAMES[0], order, units=units))
        quarter = 0 if resolution == 0 else 250_000_000
        assert row["time_ns"] == (1_700_000 + (offset_s or 0)) * 10**9 + quarter


@pytest.mark.parametrize(
    ("resolution", "offset_s", "time_ns"),
    [
        (0, None, 2**64 - 1),
        (6, 2**63 - 1, 2**64 - 1),
        (6, -(2**63), 0),
        (29, None, 0),
        (127, None, 0),
        (28, None, 1),
        (0xFF, None, 0),
        (0x80, None, 2**64 - 1),
    ],
)
def test_times_never_overflow(
    show: Any, resolution: int, offset_s: int | None, time_ns: int
) -> None:
    data = cb.section() + cb.interface(resolution=resolution, offset_s=offset_s)
    (row,) = show(data + cb.enhanced(FRAMES[0], units=2**64 - 1))
    assert row["time_ns"] == time_ns


def test_sections_interfaces_and_other_blocks(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    parts = []
    for order in "<>":
        parts += [
            cb.section(order),
            cb.block(0x0BAD, b"unknown", order),
            cb.interface(order, name="eth0", resolution=9),
            cb.interface(order, link=cb.RAW, name="tun0"),
            cb.enhanced(FRAMES[0], order, units=FRAMES[0].time_ns, flags=1),
            cb.enhanced(FRAMES[1]._replace(data=PACKETS[1]), order, interface_id=1, flags=2),
            cb.obsolete(FRAMES[2], order, drops=4),
            cb.simple(FRAMES[3], order),
            cb.statistics(order, 1, received=100, dropped=5, later=2),
        ]
    path.write_bytes(b"".join(parts))
    with read(path) as file:
        found = [row for batch in file for row in rows(batch)]
        assert file.format == "pcapng"
        assert file.frames == 8
        assert [one.name for one in file.interfaces] == ["eth0", "tun0"] * 2
        assert [one.frames for one in file.interfaces] == [3, 1] * 2
        assert [(one.received, one.dropped) for one in file.interfaces] == [
            (None, None),
            (100, 7),
        ] * 2
        assert file.drops == 2 * (4 + 7)
        assert file.warnings == []
    assert [row["psn"] for row in found] == [1, 2, 2, 3] * 2
    assert [row.get("direction") for row in found] == ["rx", "tx", None, None] * 2


def test_unknown_blocks_of_any_length_are_passed_over(show: Any) -> None:
    huge = cb.block(0x0BAD, bytes(5 << 20))
    data = cb.section() + huge + cb.interface() + cb.enhanced(FRAMES[0]) + huge
    assert len(show(data)) == 1


def test_an_unknown_link_type_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(cb.pcap(FRAMES, link=147))
    with read(path) as file:
        assert [len(batch) for batch in file] == [0]  # counted, none shown
        assert file.warnings == ["link type 147 is not supported: 4 frames skipped"]


@pytest.mark.parametrize("name", ["micro-<", "modified->", "pcapng-<", "pcapng->"])
def test_truncation_at_every_byte(tmp_path: Path, name: str) -> None:
    """Every whole packet before the cut, then one sentence; a cut between packets is no damage."""
    data = VARIANTS[name]
    path = tmp_path / "capture"
    whole = 0
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        reader = FileReader(path)
        batch = Batch(64)
        count = 0
        while reader.next_batch(batch):
            count += len(batch)
        reader.close()
        assert count >= whole
        whole = count
        if cut < 4:
            assert reader.error is not None
            assert reader.error.startswith("not a pcap or pcapng file (")
        elif reader.error is not None:
            assert reader.truncated
            assert reader.error.endswith(f"(byte {cut})")
    assert whole == len(FRAMES) - 1


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "not a pcap or pcapng file (it is empty)"),
        (b"hi", "not a pcap or pcapng file (starts with 68 69)"),
        (b"hello", "not a pcap or pcapng file (starts with 68 65 6c 6c)"),
        (b"\x1f\x8b\x08\0", "compressed (gzip): use zcat FILE | livedma decode -"),
        (b"\x28\xb5\x2f\xfd", "compressed (zstd): use zstdcat FILE | livedma decode -"),
        (b"\xfd7zXZ\0", "compressed (xz): use xzcat FILE | livedma decode -"),
        (cb.pcap(FRAMES)[:-1], "file ends inside packet 4 (byte {size})"),
        (cb.pcap_header()[:9], "file ends inside the file header (byte 9)"),
        (
            cb.pcap(FRAMES[:2]) + struct.pack("<IIII", 0, 0, 3_000_000_000, 1),
            "packet 3 claims 3.0 GB, more than any frame (byte {bad})",
        ),
        (b"\xd4\xc3\xb2\xa1\x09" + cb.pcap_header()[5:], "pcap version 9.4 is unknown (byte 4)"),
        (cb.pcapng(FRAMES)[:-1], "file ends inside packet 4 (byte {size})"),
        (
            cb.section() + cb.enhanced(FRAMES[0]),
            "packet 1 is of interface 0, 0 are described (byte 28)",
        ),
        (
            cb.section() + struct.pack("<III", 77, 13, 13),
            "a block has an impossible length of 13 bytes (byte 28)",
        ),
        (
            cb.section() + struct.pack("<III", 77, 12, 16),
            "a block says 12 bytes in front and 16 behind (byte 36)",
        ),
        (
            cb.section() + struct.pack("<II", 6, 0xFFFFFFFC),
            "packet 1 claims 4.3 GB, more than any frame (byte 28)",
        ),
        (
            cb.section() + cb.block(1, struct.pack("<HHIHH", 1, 0, 0, 2, 900)),
            "interface 0 has an option that leads out of its block (byte 44)",
        ),
        (
            cb.section()[:8] + b"nope" + cb.section()[12:],
            "a section header has byte order 0x6e6f7065 (byte 8)",
        ),
    ],
)
def test_damage_is_one_clear_sentence(complain: Any, data: bytes, error: str) -> None:
    assert complain(data) == error.format(size=len(data), bad=len(data) - 16)


def test_contradicting_lengths_are_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    short = FRAMES[0]._replace(length=60)
    path.write_bytes(cb.pcap([short, FRAMES[1]]))
    with read(path) as file:
        found = [row for batch in file for row in rows(batch)]
        assert file.warnings == ["1 frame with contradicting lengths: cut to what is there"]
    assert "IP says" in found[0]["error"]
    assert "error" not in found[1]

    body = struct.pack("<IIIII", 0, 0, 0, 5000, 5000) + cb.padded(FRAMES[0].data)
    path.write_bytes(cb.section() + cb.interface() + cb.block(6, body) + cb.enhanced(FRAMES[1]))
    with read(path) as file:
        assert sum(len(batch) for batch in file) == 2
        assert file.warnings == ["1 frame with contradicting lengths: cut to what is there"]


def test_random_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    chance = random.Random(1)
    heads = [b"", cb.pcap_header(), cb.section(), cb.section() + cb.interface(), cb.section(">")]
    for i in range(400):
        path.write_bytes(heads[i % len(heads)] + chance.randbytes(chance.randrange(600)))
        with contextlib.suppress(CaptureFileError):
            read_all(path)


def test_batches_smaller_than_the_file(show: Any) -> None:
    data = cb.pcap(FRAMES * 50)
    assert show(data, capacity=7) == show(data)
    with pytest.raises(ValueError, match="no room"):
        show(data, capacity=0)


def test_more_than_the_buffer_holds(show: Any) -> None:
    frames = [f._replace(time_ns=START_NS + i * 1000) for i, f in enumerate(FRAMES * 2000)]
    for data in (cb.pcap(frames), cb.pcapng(frames)):
        assert len(data) > 2 << 20
        assert [row["time_ns"] for row in show(data)] == [frame.time_ns for frame in frames]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent", "No such file or directory"), (".", "Is a directory"), ("a\0b", "null byte")],
)
def test_what_cannot_be_opened_is_one_sentence(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(CaptureFileError, match=reason):
        read_all(tmp_path / name)


def test_a_batch_outlives_its_reader(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(cb.pcap(FRAMES))
    reader, batch = FileReader(path), Batch(16)
    assert reader.next_batch(batch)
    reader.close()
    reader.close()
    assert not reader.next_batch(Batch(16))
    del reader
    assert batch[0].frame == FRAMES[0].data
