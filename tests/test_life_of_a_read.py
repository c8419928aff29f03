# SPDX-License-Identifier: BSD-2-Clause
"""The packets of a read are those that docs/architecture.md draws."""

from __future__ import annotations

import pytest

from livedma.capture.device import DeviceCapture
from livedma.lab.stage import Stage

READS = 5
OF_A_READ = [
    "rx RC_SEND_ONLY",
    "tx RC_RDMA_WRITE_FIRST",
    *["tx RC_RDMA_WRITE_MIDDLE"] * 14,
    "tx RC_RDMA_WRITE_LAST",
    "tx RC_SEND_ONLY",
]


@pytest.mark.slow
def test_64_kib_are_one_packet_in_and_seventeen_out() -> None:
    with Stage(isolated=False) as stage:
        stage.serve("--policy", "static", "--monitor", "server")
        one_at_a_time = ("--sessions", "1", "--depth", "1", "--size", "64KiB", "--no-follow")
        load = stage.load(*one_at_a_time, "--seconds", "5")
        next(iter(load))
        count = 10 * READS * (len(OF_A_READ) + 2)
        with DeviceCapture(stage.server_address, snaplen=128, count=count, seconds=30) as capture:
            seen = [
                f"{'tx' if packet.src == stage.server_address else 'rx'} {packet.opcode_name}"
                for batch in capture
                for packet in batch
                if packet.opcode_name != "RC_ACKNOWLEDGE"
            ]
    # A busy machine repeats a packet now and then: somewhere there are some reads without.
    whole = READS * OF_A_READ
    assert any(seen[at : at + len(whole)] == whole for at in range(len(seen))), seen
