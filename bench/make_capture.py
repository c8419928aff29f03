# SPDX-License-Identifier: BSD-2-Clause
"""Makes a large capture out of small ones.

Repeats the packets of the given captures (little-endian microsecond pcap, Ethernet) until there are
as many as asked for; times go up by a second per repetition. Runs at the speed of the disk.

    python bench/make_capture.py OUT.pcap PACKETS CAPTURE.pcap …
"""

import argparse
import struct
from pathlib import Path

HEADER, RECORD = 24, 16


def records(path: Path) -> tuple[bytes, list[int]]:
    """All whole records of a capture, and where each of them ends."""
    data = path.read_bytes()
    if data[:4] != b"\xd4\xc3\xb2\xa1":
        raise SystemExit(f"{path}: not a little-endian microsecond pcap file")
    ends, pos = [], HEADER
    while pos + RECORD <= len(data):
        (captured,) = struct.unpack_from("<I", data, pos + 8)
        if pos + RECORD + captured > len(data):
            break
        pos += RECORD + captured
        ends.append(pos - HEADER)
    return data[HEADER:pos], ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("packets", type=int)
    parser.add_argument("captures", type=Path, nargs="+")
    args = parser.parse_args()

    block, starts = bytearray(), []
    for path in args.captures:
        data, ends = records(path)
        starts += [len(block) + start for start in [0, *ends[:-1]]]
        block += data
    if not starts:
        parser.error("the captures have no packets")
    starts.append(len(block))
    count = len(starts) - 1
    with args.out.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for done in range(0, args.packets, count):
            second = 1_700_000_000 + done // count
            for i, start in enumerate(starts[:-1]):
                struct.pack_into("<II", block, start, second, i * 1_000_000 // count)
            out.write(memoryview(block)[: starts[min(count, args.packets - done)]])


if __name__ == "__main__":
    main()
