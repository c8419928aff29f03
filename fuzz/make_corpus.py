# SPDX-License-Identifier: BSD-2-Clause
"""Makes the seed corpus: python fuzz/make_corpus.py CAPTURE.pcap …

Takes the smallest packet of each opcode from the captures (Ethernet, little-endian pcap), cut to a
few hundred bytes, and adds files made by hand for every format and every kind of damage. What a
fuzzer found is kept next to them under its own name (found-*) and is not touched.
"""

import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "capture"))

import capture_bytes as cb  # noqa: E402  (it is not a package)

SMALL = 400  # bytes; larger frames are of no more use to a fuzzer
LINKS = {"ethernet": 0, "sll": 1, "sll2": 2, "raw": 3, "ipv4": 4, "ipv6": 5}  # as in fuzz_packet.c


def read_frames(path: Path) -> list[cb.Frame]:
    data = path.read_bytes()
    pos, frames = 24, []
    while pos + 16 <= len(data):
        seconds, fraction, captured, length = struct.unpack_from("<IIII", data, pos)
        bytes_ = data[pos + 16 : pos + 16 + captured]
        frames.append(cb.Frame(seconds * 10**9 + fraction * 1000, bytes_, length))
        pos += 16 + captured
    return frames


def opcode_of(frame: bytes) -> tuple[int, int] | None:
    """(IP version, opcode) of a RoCEv2 frame."""
    if len(frame) < 62:
        return None
    at = {0x0800: 14 + 20, 0x86DD: 14 + 40}.get(int.from_bytes(frame[12:14], "big"))
    if at is None or frame[at + 2 : at + 4] != (4791).to_bytes(2, "big"):
        return None
    return frame[14] >> 4, frame[at + 8]


def choose(paths: list[Path]) -> dict[tuple[int, int], cb.Frame]:
    """The smallest frame of each opcode."""
    best: dict[tuple[int, int], cb.Frame] = {}
    for path in paths:
        for frame in read_frames(path):
            key = opcode_of(frame.data)
            if key and (key not in best or len(frame.data) < len(best[key].data)):
                best[key] = frame
    return best


def packet_seeds(chosen: dict[tuple[int, int], cb.Frame]) -> dict[str, bytes]:
    seeds = {}
    for (version, opcode), frame in chosen.items():
        name = f"v{version}-{opcode:02x}"
        more = int(max(0, len(frame.data) - SMALL) > 0)
        seeds[name] = bytes([LINKS["ethernet"], more]) + frame.data[:SMALL]
        seeds[name + "-less"] = bytes([LINKS["ethernet"], 131]) + frame.data[:SMALL]
    frame = next(iter(chosen.values())).data
    six = next((f.data for (v, _), f in chosen.items() if v == 6), frame)
    seeds["sll"] = bytes([LINKS["sll"], 0]) + cb.cooked(frame)
    seeds["sll2"] = bytes([LINKS["sll2"], 0]) + cb.cooked2(frame)
    seeds["raw"] = bytes([LINKS["raw"], 0]) + frame[14:]
    seeds["raw-ipv6"] = bytes([LINKS["ipv6"], 0]) + six[14:]
    seeds["vlan"] = bytes([0, 0]) + frame[:12] + bytes.fromhex("8100 0064") + frame[12:]
    seeds["qinq"] = bytes([0, 0]) + frame[:12] + bytes.fromhex("88a8000a81000064") + frame[12:]
    grh = six[14:20] + b"\x1b" + six[21:54]
    grh = grh[:4] + struct.pack(">H", len(six) - 62) + grh[6:]
    seeds["roce1"] = bytes([0, 0]) + six[:12] + b"\x89\x15" + grh + six[62:]
    extension = bytes([17, 0]) + bytes(6)
    length = int.from_bytes(six[18:20], "big") + 8
    ext = six[:18] + struct.pack(">H", length) + b"\x3c" + six[21:54] + extension + six[54:]
    seeds["ipv6-extension"] = bytes([0, 0]) + ext
    seeds["ipv6-long-extension"] = bytes([0, 0]) + ext[:55] + b"\x1f" + bytes(240) + ext[56:]
    seeds["ipv4-options"] = bytes([0, 0]) + frame[:14] + b"\x46" + frame[15:34] + bytes(4)
    seeds["ipv4-options"] += frame[34:]
    seeds["empty"] = bytes(2)
    return seeds


def file_seeds(frames: list[cb.Frame]) -> dict[str, bytes]:
    a, b = frames[:2]
    seeds = {
        f"pcap-{name}-{'le' if order == '<' else 'be'}": cb.pcap(frames[:3], order, magic)
        for name, magic in (("micro", cb.MICRO), ("nano", cb.NANO), ("modified", cb.MODIFIED))
        for order in "<>"
    }
    whole = seeds["pcap-micro-le"]
    seeds["pcap-cut-record"] = whole[:-5]
    seeds["pcap-cut-header"] = whole[:20]
    seeds["pcap-claims"] = cb.pcap_header() + struct.pack("<IIII", 0, 0, 3 << 30, 3 << 30)
    seeds["pcap-captured-more"] = cb.pcap([a._replace(length=20), b._replace(length=0), a])
    seeds["pcap-empty-frame"] = cb.pcap([cb.Frame(0, b""), a])
    seeds["pcap-version"] = whole[:4] + b"\x09" + whole[5:]
    seeds["pcap-link"] = cb.pcap([a], link=147)
    for order, end in (("<", "le"), (">", "be")):
        seeds[f"pcapng-{end}"] = (
            cb.section(order, cb.option(4, b"made by hand", order) + cb.END_OF_OPTIONS)
            + cb.interface(order, name="eth0", resolution=9)
            + cb.interface(order, resolution=0x80 | 20, offset_s=-5)
            + cb.enhanced(a, order, flags=1, drops=3)
            + cb.enhanced(b, order, interface_id=1, flags=2)
            + cb.simple(a, order)
            + cb.obsolete(b, order, drops=2)
            + cb.block(0x0BAD, b"unknown", order)
            + cb.statistics(order, 0, 10, 2, 1)
        )
    both = seeds["pcapng-le"]
    seeds["pcapng-sections"] = both + seeds["pcapng-be"]
    seeds["pcapng-cut"] = both[:-7]
    seeds["pcapng-back"] = both[:-4] + b"\x01\0\0\0"
    seeds["pcapng-odd-length"] = both + struct.pack("<III", 9, 13, 13)
    seeds["pcapng-no-interface"] = cb.section() + cb.enhanced(a)
    seeds["pcapng-resolutions"] = b"".join(
        [cb.section(), *(cb.interface(resolution=r) for r in (0, 6, 12, 28, 29, 127, 128, 255))]
        + [cb.enhanced(a, interface_id=i, units=2**64 - 1) for i in range(8)]
    )
    seeds["pcapng-captured-more"] = (
        cb.section() + cb.interface() + cb.block(6, struct.pack("<IIIII", 0, 0, 0, 900, 900) + b"x")
    )
    seeds["pcapng-option"] = cb.section() + cb.block(1, struct.pack("<HHIHH", 1, 0, 0, 2, 900))
    seeds["pcapng-order"] = cb.section()[:8] + b"nope" + cb.section()[12:]
    seeds["pcapng-huge-block"] = cb.section() + struct.pack("<II", 0x0BAD, 0xFFFFFFF0) + bytes(16)
    seeds["gzip"] = bytes.fromhex("1f8b0800")
    seeds["text"] = b"hello"
    seeds["empty"] = b""
    return {name: bytes([len(name)]) + data for name, data in seeds.items()}


def flow_step(frame: bytes, first: bytes) -> bytes:
    """An IPv4 frame as fuzz_flow.c takes packets: 16 bytes that name what matters of it."""
    forward = frame[26:30] == first[26:30]
    hosts = 0b00_01_00_0 if forward else 0b00_00_01_0  # dst and src: two bits each
    bth, behind = frame[42:54], frame[54:58]
    payload = max(0, len(frame) - 58)
    return (
        bytes([bth[0], hosts, bth[7] & 15 | bth[8] & 0x80])
        + bth[9:12]
        + bytes([behind[0], *behind[2:4]])
        + payload.to_bytes(4, "big")[:3]
        + bytes([5])
        + payload.to_bytes(2, "big")
        + bytes([4 if bth[0] == 0x64 else 0])
    )


def flow_seeds(paths: list[Path]) -> dict[str, bytes]:
    """Small captures of IPv4, as sequences of packets."""
    seeds = {}
    for path in paths:
        frames = [frame.data for frame in read_frames(path)[:64]]
        if all((opcode_of(frame) or (6, 0))[0] == 4 for frame in frames):
            seeds[path.stem] = b"".join(flow_step(frame, frames[0]) for frame in frames)
    return seeds


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def rpcrdma_seeds() -> dict[str, bytes]:
    """Headers of RPC-over-RDMA: each kind, and most ways to be wrong."""
    segment = words(5, 8, 1, 2)
    message, nomsg = words(7, 1, 32, 0), words(7, 1, 32, 1)
    read = words(1, 16) + segment
    return {
        "plain": message + words(0, 0, 0, 7, 0, 2),
        "reads": message + read * 2 + words(1, 64) + segment + words(0, 0, 0, 7),
        "unsorted": message + words(1, 64) + segment + read + words(0, 0, 0, 7),
        "writes": message + words(0, 1, 2) + segment * 2 + words(1, 0, 0, 0, 7),
        "reply": message + words(0, 0, 1, 1) + segment + words(7),
        "long-call": nomsg + words(1, 0) + segment + read + words(0, 0, 0),
        "long-reply": nomsg + words(0, 0, 1, 1) + segment,
        "overlap": message + read + words(1, 20) + segment + words(0, 0, 0, 7),
        "many": message + read * 20 + words(0, 0, 0, 7),
        "beyond": message + words(1, 16, 5, 2, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 7),
        "count": message + words(0, 1, 0xFFFFFFFF),
        "xid": message + words(0, 0, 0, 8),
        "version": words(7, 2, 32, 0, 0, 0, 0, 7),
        "msgp": words(7, 1, 32, 2, 0, 0, 0, 0, 7),
        "done": words(7, 1, 32, 3),
        "error-chunk": words(7, 1, 32, 4, 2),
        "error-version": words(7, 9, 32, 4, 1, 1, 2),
        "short": words(7, 1, 32),
    }


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    paths = [Path(path) for path in sys.argv[1:]]
    chosen = choose(paths)
    small = sorted(chosen.values(), key=lambda frame: len(frame.data))
    for kind, seeds in (
        ("packet", packet_seeds(chosen)),
        ("capfile", file_seeds(small)),
        ("flow", flow_seeds(paths)),
        ("rpcrdma", rpcrdma_seeds()),
    ):
        folder = HERE / "corpus" / kind
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (folder / name).write_bytes(data)
        print(kind, len(seeds), sum(map(len, seeds.values())), "bytes")


if __name__ == "__main__":
    main()
