# SPDX-License-Identifier: BSD-2-Clause
"""Filters: what is written, and what the kernel then lets through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from taps import Tap

from livedma.capture.filters import Filters
from livedma.lab.hosts import Host
from livedma.wire.encode import encode, ethernet
from traffic import packet_socket

pytestmark = pytest.mark.slow

HOOKS = pytest.mark.parametrize("hook", ["xdp", "tc"])


def settings(**given: Any) -> dict[str, Any]:
    parsed = Filters.parse(**given)
    return {"prefixes": parsed.prefixes, "qps": parsed.qps, "operations": parsed.operations}


def packets(src: Host, dst: Host) -> list[tuple[int, bytes]]:
    """One of each kind, by PSN."""
    reth = {"va": 0, "rkey": 1, "length": 4}
    shapes: list[tuple[str, dict[str, Any]]] = [
        ("RC_SEND_ONLY", {"payload": b"abcd", "dest_qp": 0x11}),
        ("RC_RDMA_WRITE_ONLY", {"payload": b"abcd", "dest_qp": 0x12, "reth": reth}),
        ("RC_RDMA_READ_REQUEST", {"dest_qp": 0x13, "reth": reth}),
        ("RC_ACKNOWLEDGE", {"dest_qp": 0x14, "aeth": {"syndrome": 0, "msn": 0}}),
        ("UD_SEND_ONLY", {"payload": b"x", "dest_qp": 1, "deth": {"qkey": 1, "src_qp": 0x15}}),
        ("RC_SEND_ONLY", {"payload": b"abcd", "dest_qp": 0x16, "src": "10.99.1.1"}),
        ("RC_SEND_ONLY", {"payload": b"abcd", "dest_qp": 0x17, "src": "fd99::1", "dst": "fd98::1"}),
    ]
    macs = {"src": src.mac.hex(":"), "dst": dst.mac.hex(":")}
    return [
        (
            psn,
            ethernet(
                encode(opcode, **{"src": src.ipv4, "dst": dst.ipv4, "psn": psn, **fields}), **macs
            ),
        )
        for psn, (opcode, fields) in enumerate(shapes)
    ]


@HOOKS
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {0, 1, 2, 3, 4, 5, 6}),
        ({"host": ["10.80.0.1"]}, {0, 1, 2, 3, 4}),
        ({"host": ["10.80.0.2"]}, {0, 1, 2, 3, 4, 5}),
        ({"src": ["10.80.0.2"]}, set()),
        ({"dst": ["10.80.0.2"]}, {0, 1, 2, 3, 4, 5}),
        ({"src": ["10.99.0.0/16"]}, {5}),
        ({"src": ["10.98.0.0/15", "10.80.0.0/24"]}, {0, 1, 2, 3, 4, 5}),
        ({"src": ["10.99.0.0/16"], "dst": ["10.80.0.0/24"]}, {5}),
        ({"src": ["10.99.0.0/16"], "dst": ["10.99.0.0/24"]}, set()),
        ({"src": ["::/0"]}, {6}),
        ({"host": ["fd98::/16"]}, {6}),
        ({"host": ["fd98::/16", "10.99.1.1/32"]}, {5, 6}),
        ({"qp": ["0x11"]}, {0}),
        ({"qp": ["17", "0x12"]}, {0, 1}),
        ({"qp": ["0x15"]}, {4}),  # the source in the DETH
        ({"op": ["send"]}, {0, 4, 5, 6}),
        ({"op": ["write,read", "ACK"]}, {1, 2, 3}),
        ({"op": ["response"]}, {3}),
        ({"op": ["send"], "qp": ["0x11", "0x12"]}, {0}),
        ({"op": ["send"], "host": ["10.99.1.1"], "qp": ["0x16"]}, {5}),
    ],
)
def test_in_the_kernel(
    hosts: tuple[Host, Host],
    tap: Callable[..., Tap],
    hook: str,
    given: dict[str, list[str]],
    expected: set[int],
) -> None:
    src, dst = hosts
    taps = [tap(dst, "rx", hook, **settings(**given)), tap(src, "tx", **settings(**given))]
    everything = tap(dst, "rx", "tc")
    with packet_socket(src, bypass_qdisc=False) as sock:
        for _, frame in packets(src, dst):
            sock.send(frame)
    assert len(everything.read(7)) == 7
    for one in taps:
        assert {packet.psn for packet in one.read(len(expected))} == expected
        counters = one.counters()
        assert (counters["roce"], counters["matched"]) == (7, len(expected))


@HOOKS
def test_sampling_takes_one_of_every_n(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    src, dst = hosts
    rx = tap(dst, "rx", hook, sample=10)
    frame = packets(src, dst)[0][1]
    with packet_socket(src, bypass_qdisc=False) as sock:
        for _ in range(1000):
            sock.send(frame)
    rx.read(100)
    counters = rx.counters()
    # each CPU counts by itself, so a few more than a tenth are possible
    assert 100 <= counters["recorded"] <= 102
    assert counters["sampled_out"] == 1000 - counters["recorded"]


@HOOKS
@pytest.mark.parametrize("snaplen", [64, 9728])
def test_the_verifier_accepts_as_many_conditions_as_there_can_be(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str, snaplen: int
) -> None:
    prefixes = [f"10.{i}.0.0/16" for i in range(4)] + [f"fd0{i}::/16" for i in range(4)]
    given = settings(host=prefixes, qp=range(16), op=["send,write,read,atomic,response"])
    tap(hosts[1], "rx", hook, snaplen=snaplen, sample=7, **given)
    tap(hosts[1], "tx", snaplen=snaplen, sample=7, **given)


def test_limits_are_said() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        Filters.parse(host=["10.0.0.1"] * 9)
    with pytest.raises(ValueError, match="at most 16"):
        Filters.parse(qp=range(17))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": ["10.0.0.256"]}, "is no address"),
        ({"src": ["host.example"]}, "is no address"),
        ({"qp": ["x"]}, "is no QP"),
        ({"qp": ["0x1000000"]}, "24 bits"),
        ({"op": ["sned"]}, "is no operation: choose from"),
        ({"op": [""]}, "is no operation"),
    ],
)
def test_nonsense_is_refused(given: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Filters.parse(**given)
