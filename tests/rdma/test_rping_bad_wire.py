# SPDX-License-Identifier: BSD-2-Clause
"""livedma rping with librdmacm's over a wire that loses, repeats and corrupts: every ping right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from commands import PATIENCE_S, run, serving

from livedma.lab.guest import Lab
from livedma.lab.wire import Rule, Wire, guest_wire
from livedma.wire.opcodes import OPCODES
from stock_rping import assert_ended_well

pytestmark = pytest.mark.slow

PORT, COUNT, SIZE = "7174", 20, 8000
DATA = [opcode.name for opcode in OPCODES.values() if opcode.transport == "RC"]


@pytest.fixture
def wire(guests: Lab) -> Iterator[Wire]:
    """Bad for data; the connection manager's messages, which take seconds to repeat, pass."""
    kinds = {"drop": 0.01, "duplicate": 0.02, "corrupt": 0.01}
    rules = [Rule(kind, rate, opcode=name) for kind, rate in kinds.items() for name in DATA]
    with guest_wire(guests, guests.a, *rules, seed=11) as wire:
        yield wire
        assert wire.lost() == 0


def was_bad(wire: Wire) -> Counter[str]:
    counts = wire.counts("near") + wire.counts("far")
    del counts["seen"]
    return counts


@pytest.mark.parametrize("version", [4, 6])
def test_a_kernel_client(guests: Lab, wire: Wire, version: int) -> None:
    host = guests.host
    address = host.ipv4 if version == 4 else host.ipv6
    guests.a.run(f"ping -c 1 -W 20 {address}", check=True)  # rping gives the neighbour two seconds
    with serving(*host.command("livedma", "rping", "-s", "-a", address)) as server:
        options = f"-C {COUNT} -S {SIZE} -v -V"
        done = guests.a.run(f"rping -c -a {address} {options}", PATIENCE_S)
        assert_ended_well(done)
        assert server.wait()[0] == 0
    assert done.stdout.count("ping data: rdma-ping-") == COUNT
    assert was_bad(wire)


@pytest.mark.parametrize("version", [4, 6])
def test_a_kernel_server(guests: Lab, wire: Wire, version: int) -> None:
    a, host = guests.a, guests.host
    address, own = (a.ipv4, host.ipv4) if version == 4 else (a.ipv6, host.ipv6)
    a.run(f"ping -c 1 -W 20 {own}", check=True)
    with a.command(f"rping -s -a {address} -C {COUNT} -S {SIZE}") as server:
        a.wait_until(f"rdma resource show cm_id | grep -q 'LISTEN.*{PORT}'")
        options = ("-C", str(COUNT), "-S", str(SIZE), "-v", "-V")
        done = run(*host.command("livedma", "rping", "-c", "-a", address, *options))
        assert done.returncode == 0, done.stderr
        assert_ended_well(server.wait(PATIENCE_S))
    assert done.stdout.count("ping data: rdma-ping-") == COUNT
    assert was_bad(wire)
