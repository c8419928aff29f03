# SPDX-License-Identifier: BSD-2-Clause
"""The parser in BPF and the decoder in C agree on what is RoCE, wherever its bytes lie."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from taps import Tap

from livedma._native.wire import decode
from livedma.lab.hosts import Host
from livedma.wire.encode import encode, ethernet
from needs import needs
from xdp import PASS, attached_id, run_xdp

V4 = {"src": "10.0.0.1", "dst": "10.0.0.2"}
V6 = {"src": "fd00::1", "dst": "fd00::2"}
DETH = {"qkey": 1, "src_qp": 2}


def seeds() -> list[bytes]:
    return [
        ethernet(encode("RC_SEND_ONLY", payload=b"abcd" * 40, **V4)),
        ethernet(encode("UD_SEND_ONLY", payload=b"abcd", deth=DETH, **V4), vlan=(7,)),
        ethernet(encode("RC_ACKNOWLEDGE", aeth={"syndrome": 0, "msn": 1}, **V6), vlan=(7, 8)),
        ethernet(encode("UD_SEND_ONLY", payload=b"abcd", deth=DETH, **V6)),
        ethernet(encode("RC_SEND_ONLY", payload=b"ab", version="roce1", **V6), version="roce1"),
    ]


def is_fragment(frame: bytes) -> bool:
    """The decoder guesses what is in a later fragment; the kernel's side takes none."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    if frame[at : at + 2] == b"\x08\x00":
        return bool(int.from_bytes(frame[at + 8 : at + 10], "big") & 0x1FFF)
    return frame[at : at + 2] == b"\x86\xdd" and frame[at + 8 : at + 9] != b"\x11"


@pytest.fixture
def program(hosts: tuple[Host, Host], tap: Callable[..., Tap]) -> tuple[int, Tap]:
    rx = tap(hosts[1], "rx", "xdp")
    return attached_id(hosts[1]), rx


def test_bpf_and_c_agree_on_mutated_frames(program: tuple[int, Tap]) -> None:
    program_id, rx = program
    dice = random.Random(4791)
    expected = []
    for _ in range(3000):
        frame = bytearray(dice.choice(seeds()))
        for _ in range(dice.choice((0, 1, 1, 2, 4))):
            frame[dice.randrange(min(len(frame), 90))] = dice.choice((0, 1, 17, 64, 129, 255))
        if dice.random() < 0.3:
            del frame[dice.randrange(14, len(frame)) :]
        if is_fragment(bytes(frame)):
            continue
        assert run_xdp(program_id, bytes(frame)) == PASS
        if decode(bytes(frame)):
            expected.append(bytes(frame))
    assert len(expected) > 1000
    assert [packet.frame for packet in rx.read(len(expected))] == expected


@pytest.mark.parametrize("linear_bytes", [14, 20, 34, 42, 50, 54, 60, 90])
def test_headers_in_fragments(program: tuple[int, Tap], linear_bytes: int) -> None:
    program_id, rx = program
    frames = [frame + bytes(200) for frame in seeds()]
    for frame in frames:
        try:
            assert run_xdp(program_id, frame, linear_bytes) == PASS
        except OSError as error:
            needs(False, f"the kernel cannot lay a test packet out: {error}")
    assert [packet.frame for packet in rx.read(len(frames))] == frames
