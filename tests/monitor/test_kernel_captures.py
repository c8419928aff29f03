# SPDX-License-Identifier: BSD-2-Clause
"""What the kernel's NFS client and server said, shown to the monitor packet by packet.

What they did is told by the decoder, which has no code in common with the BPF programs.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

import captures
from livedma.monitor import Monitor
from livedma.monitor.snapshot import Losses

NAMES = ["nfs_rdma_v4.1", "nfs_rdma_v4.2", "mtu4096_nfs_v4.2", "loss_nfs_v4.2"]
#: What was copied to the server and back, by scripts that made the captures.
WRITTEN, READ = 27 + 212_992, 212_992


def decoded(name: str) -> list[dict[str, Any]]:
    argv = ["livedma", "decode", "--json", str(captures.capture(name))]
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_every_exchange_and_byte(bpf: None, name: str) -> None:
    calls: dict[int, dict[str, Any]] = {}
    answered = set()
    for packet in decoded(name):
        if "rpcrdma" not in packet:
            continue
        xid = packet["rpcrdma"]["xid"]
        if packet["dst"] == "10.77.0.1":
            calls.setdefault(xid, packet.get("rpc", {}))
        else:
            answered.add(xid)
    with Monitor([]) as monitor:
        for frame in captures.frames(captures.capture(name)):
            monitor.feed(frame.data)
        seen = monitor.snapshot()
    (connection,), (session,) = seen.connections, seen.sessions
    assert seen.losses == Losses()
    assert (connection.read_bytes, connection.written_bytes) == (READ, WRITTEN)
    assert (session.read_bytes, session.written_bytes) == (READ, WRITTEN)
    assert connection.operations == len(answered & set(calls))
    with_session = {xid for xid in answered if "sequence" in calls.get(xid, {})}
    assert session.id in {calls[xid]["sequence"]["session"] for xid in with_session}
    assert session.operations == len(with_session)
    assert (connection.naks > 0) == (connection.retransmissions > 0) == name.startswith("loss")
    assert (connection.credits_asked, connection.credits_granted) == (128, 64)


def test_nfsv3_has_connections_only(bpf: None) -> None:
    with Monitor([]) as monitor:
        for frame in captures.frames(captures.capture("nfs_rdma_v3")):
            monitor.feed(frame.data)
        seen = monitor.snapshot()
    assert (seen.sessions, seen.losses) == ((), Losses())
    assert (seen.connections[0].read_bytes, seen.connections[0].written_bytes) == (READ, READ)


@pytest.mark.parametrize("name", captures.names())
def test_no_capture_upsets_it(bpf: None, name: str) -> None:
    with Monitor([], connections=8, sessions=16) as monitor:
        for frame in captures.frames(captures.capture(name)):
            monitor.feed(frame.data)
        seen = monitor.snapshot()
        assert seen.losses == Losses()
        assert bool(seen.connections) == ("nfs" in name)
