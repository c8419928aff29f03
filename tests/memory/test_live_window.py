# SPDX-License-Identifier: BSD-2-Clause
"""A window that grows and shrinks under a peer that reads and writes it flat out."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from window_peer import PORT, WHERE, Peer, pattern
from windowed import RIGHTS

from livedma.memory import File, Window
from livedma.rdma import Device, ProtectionDomain, cm

MIB = 1 << 20
ROUNDS = 200
HERE, THERE = "127.0.9.1", "127.0.9.2"


@contextmanager
def served(window: Window, device: Device, pd: ProtectionDomain) -> Iterator[Peer]:
    """A peer that may connect as often as it likes."""
    connections: list[cm.Connection] = []
    where = WHERE.pack(window.va, window.key)

    def accept(listener: cm.Listener) -> None:
        for request in listener:
            # A probe may be refused, and its queue pair be at its end, before it is confirmed.
            with suppress(cm.ConnectError):
                connections.append(request.accept(pd=pd, private_data=where, timeout=20))

    with cm.listen(device, PORT) as listener, Peer(THERE, HERE) as peer:
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
        yield peer
    for connection in connections:
        connection.close()


@pytest.mark.slow
def test_two_hundred_extends_and_shrinks() -> None:
    with Device(HERE) as device, device.protection_domain() as pd:
        window = pd.window(64 * MIB, *RIGHTS, mapped=4 * MIB, part=MIB)
        with window, served(window, device, pd) as peer:
            grow_and_shrink(window, peer)


def grow_and_shrink(window: Window, peer: Peer) -> None:
    kept = window.take(4 * MIB)  # this part stays
    peer.call("start", 0, kept.length)
    gone: list[int] = []
    for number in range(ROUNDS):
        parts = [window.extend() for _ in range(1 + number % 3 // 2)]
        for part in parts:
            assert peer.call("use", part.offset, part.length, number) > 0
            assert window.view(part.offset, part.length) == pattern(number, part.length)
        assert window.shrink(sum(part.length for part in parts)) == len(parts) * MIB
        gone = [part.offset for part in parts]
        if number % 10 == 0:
            for operation, offset in (("WRITE", gone[0]), ("READ", gone[-1] + MIB - 4096)):
                assert peer.call("probe", operation, offset, 4096) == "REM_ACCESS_ERR"
            # All of a message has to be mapped: not a byte of this one is.
            assert peer.call("probe", "WRITE", gone[0] - 10, 20) == "REM_ACCESS_ERR"
            assert peer.call("probe", "READ", gone[0] - 10, 10) == "SUCCESS"
    seen = peer.call("stop")
    assert seen["trouble"] == ""
    assert seen["operations"] > 0
    stats = window.statistics()
    assert (stats.cut, stats.mapped, stats.parts) == (0, 4 * MIB, 1)
    assert stats.extends == stats.shrinks + 1 >= ROUNDS
    print(f"{seen['operations']} operations, the longest gap {seen['longest_gap_ms']:.1f} ms")


@pytest.mark.slow
def test_a_file_is_cut_short_under_traffic(tmp_path: Path) -> None:
    """The connection ends with the access error, and the process serves others."""
    path = tmp_path / "data"
    with Device(HERE) as device, device.protection_domain() as pd:
        window = pd.window(8 * MIB, *RIGHTS, mapped=2 * MIB, backing=File(path))
        with window, served(window, device, pd) as peer:
            peer.call("use", 0, 2 * MIB, 1)
            assert path.read_bytes() == pattern(1, 2 * MIB)
            peer.call("start", 0, 2 * MIB)
            with path.open("r+b") as file:
                file.truncate(MIB)
            assert peer.call("probe", "READ", MIB, 4096) == "REM_ACCESS_ERR"
            assert peer.call("probe", "READ", 0, 4096) == "SUCCESS"
            assert peer.call("stop")["trouble"] == "AssertionError: REM_ACCESS_ERR"
            peer.call("use", 0, MIB, 2)
            window.flush(0, MIB)
            assert path.read_bytes() == pattern(2, MIB)


def test_closing_a_device_closes_its_windows() -> None:
    device = Device(HERE)
    pd = device.protection_domain()
    window = pd.window(4 * MIB, *RIGHTS, mapped=MIB)
    with pytest.raises(OSError):
        pd.close()  # after all that uses it
    device.close()
    assert window.closed
    assert window.parts == ()
    pd.close()
