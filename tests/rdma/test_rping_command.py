# SPDX-License-Identifier: BSD-2-Clause
"""livedma rping: with itself on loopback, with librdmacm's in a real kernel, and with bad peers."""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from commands import PATIENCE_S, loopback_address, run, serving

from livedma.lab.guest import Lab
from livedma.lab.hosts import two_hosts
from livedma.rdma import Device, cm
from livedma.tools.endpoint import device_towards
from needs import needs
from stock_rping import assert_ended_well

pytestmark = pytest.mark.slow  # many processes

PORT = "7174"
SIZES = (23, 64, 1000, 4096, 65535)


def expected(count: int, size: int, who: str = "") -> str:
    """What rping prints with -v."""
    lines = []
    for number in range(count):
        head = f"rdma-ping-{number}: "
        letters = (chr(65 + (number + i) % 58) for i in range(size - len(head) - 1))
        lines.append(f"{who}ping data: {head}{''.join(letters)}\n")
    return "".join(lines)


@pytest.mark.parametrize("size", SIZES)
def test_both_sides_on_loopback(size: int) -> None:
    address, count = loopback_address(), 5
    with serving("livedma", "rping", "-s", "-a", address, "-v") as server:
        done = run(
            *("livedma", "rping", "-c", "-a", address, "-v", "-V"),
            *("-C", str(count), "-S", str(size)),
        )
        status, out, said = server.wait()
    assert (done.returncode, done.stderr) == (0, "client DISCONNECT EVENT...\n")
    assert done.stdout == expected(count, size)
    assert (status, out) == (0, expected(count, size, "server "))
    assert said.endswith("server DISCONNECT EVENT...\n")


def test_the_steps_are_told() -> None:
    address = loopback_address()
    with serving("livedma", "rping", "-s", "-a", address, "-d") as server:
        done = run("livedma", "rping", "-c", "-a", address, "-C", "1", "-d")
        _, out, _ = server.wait()
    steps = [line for line in out.splitlines() if line.startswith("server ")]
    assert steps == [
        "server received sink adv",
        "server posted rdma read req",
        "server received read complete",
        "server posted go ahead",
        "server received sink adv",
        "server rdma write complete",
        "server posted go ahead",
    ]
    assert done.stdout.count("RDMA addr") == 2


def test_a_summary_for_machines() -> None:
    address = loopback_address()
    with serving("livedma", "rping", "-s", "-a", address):
        done = run("livedma", "rping", "-c", "-a", address, "-C", "3", "-V", "--json")
    summary = json.loads(done.stdout)
    assert (summary["server"], summary["pings"], summary["validated"]) == (address, 3, True)


def test_a_persistent_server_has_many_clients_at_once() -> None:
    address = loopback_address()
    with (
        serving("livedma", "rping", "-s", "-P", "-a", address) as server,
        device_towards(address, 0) as device,
    ):
        # While this one is connected and says nothing, others are served.
        silent = cm.connect(device, address, int(PORT), timeout=PATIENCE_S)
        for _ in range(2):
            done = run("livedma", "rping", "-c", "-a", address, "-C", "2", "-V")
            assert done.returncode == 0, done.stderr
        assert silent.is_established
        server.interrupt()
        assert server.wait()[0] == 130
        assert silent.wait_disconnected(PATIENCE_S)


@pytest.mark.slow
def test_ipv6_between_hosts() -> None:
    needs(os.geteuid() == 0, "namespaces need root")
    with (
        two_hosts() as (here, there),
        serving(*there.command("livedma", "rping", "-s", "-a", there.ipv6)) as server,
    ):
        client = ("livedma", "rping", "-c", "-a", there.ipv6, "-C", "5", "-V", "-S", "5000")
        done = run(*here.command(*client))
        assert (done.returncode, server.wait()[0]) == (0, 0), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 4096, 65535])
@pytest.mark.parametrize("version", [4, 6])
def test_a_kernel_client(guests: Lab, version: int, size: int) -> None:
    host, count = guests.host, 100
    address = host.ipv4 if version == 4 else host.ipv6
    guests.a.run(f"ping -c 1 -W 20 {address}", check=True)  # rping gives the neighbour two seconds
    ours = host.command("livedma", "rping", "-s", "-a", address, "-v", "-S", str(size))
    with serving(*ours) as server:
        done = guests.a.run(f"rping -c -a {address} -C {count} -S {size} -v -V", PATIENCE_S)
        assert_ended_well(done)
        status, out, said = server.wait()
    assert done.stdout == expected(count, size)
    assert (status, out) == (0, expected(count, size, "server ")), said


@pytest.mark.slow
@pytest.mark.parametrize("size", [64, 4096, 65535])
@pytest.mark.parametrize("version", [4, 6])
def test_a_kernel_server(guests: Lab, version: int, size: int) -> None:
    a, host, count = guests.a, guests.host, 100
    address, own = (a.ipv4, host.ipv4) if version == 4 else (a.ipv6, host.ipv6)
    a.run(f"ping -c 1 -W 20 {own}", check=True)
    with (
        a.command(f"rping -s -a {address} -C {count} -S {size} -v") as server,
        ThreadPoolExecutor(1) as threads,
    ):
        a.wait_until(f"rdma resource show cm_id | grep -q 'LISTEN.*{PORT}'")
        answer = threads.submit(server.wait, PATIENCE_S)  # also takes what it prints
        # the guest's MTU; this side of the bridge could do more
        ours = ("livedma", "rping", "-c", "-a", address, "-v", "-V", "--mtu", "1024")
        done = run(*host.command(*ours, "-C", str(count), "-S", str(size)))
        assert done.returncode == 0, done.stderr
        served = answer.result(PATIENCE_S)
    assert done.stdout == expected(count, size)
    assert_ended_well(served)
    assert served.stdout == expected(count, size, "server ")


@pytest.mark.slow
def test_a_persistent_server_and_both_guests(guests: Lab) -> None:
    address = guests.host.ipv4
    with serving(*guests.host.command("livedma", "rping", "-s", "-P", "-a", address)) as server:
        for guest in guests.guests:
            guest.run(f"ping -c 1 -W 20 {address}", check=True)
        command = f"rping -c -a {address} -C 50 -S 4096 -v -V"
        with guests.a.command(command) as one, guests.b.command(command) as other:
            for client in (one, other):
                done = client.wait(PATIENCE_S)
                assert_ended_well(done)
                assert done.stdout == expected(50, 4096)
        server.interrupt()
        assert server.wait()[0] == 130


class Peer:
    """The other side, in this process, so that it can do something wrong."""

    def __init__(self, device: Device) -> None:
        self.memory = bytearray(200_000)
        self.pd, self.cq = device.protection_domain(), device.completion_queue()
        self.region = self.pd.register(self.memory, "remote_read", "remote_write")
        self.setup: cm.Setup = {
            "pd": self.pd,
            "cq": self.cq,
            "prepare": lambda qp: qp.post_recv(1, [self.region[:100]]),
        }
        self.connection: cm.Connection

    def info(self, length: int, offset: int = 1000) -> bytes:
        return struct.pack("!QII", self.region.va + offset, self.region.rkey, length)

    def send(self, message: bytes) -> None:
        self.connection.qp.post_send(2, "SEND", inline=message)

    def receive(self) -> tuple[int, int, int]:
        while True:
            for completion in self.cq.wait(PATIENCE_S):
                assert completion.status == "SUCCESS"
                if completion.operation == "RECV":
                    self.connection.qp.post_recv(1, [self.region[:100]])
                    va, rkey, length = struct.unpack_from("!QII", self.memory)
                    return va, rkey, length


def server_that(does: Callable[[Peer], None], *client_options: str) -> tuple[int, str]:
    """What becomes of a client whose server does this."""
    address = loopback_address()
    with Device(address) as device, cm.listen(device, int(PORT)) as listener:
        peer = Peer(device)

        def serve() -> None:
            peer.connection = listener.get(PATIENCE_S).accept(**peer.setup)
            does(peer)
            peer.connection.wait_disconnected(PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        done = run("livedma", "rping", "-c", "-a", address, "-C", "1", *client_options)
        thread.join(PATIENCE_S)
    return done.returncode, done.stderr


def client_that(does: Callable[[Peer], None]) -> tuple[int, str]:
    """What becomes of a server whose client does this."""
    address = loopback_address()
    with (
        serving("livedma", "rping", "-s", "-a", address) as server,
        device_towards(address, 0) as device,
    ):
        peer = Peer(device)
        peer.connection = cm.connect(device, address, int(PORT), timeout=PATIENCE_S, **peer.setup)
        does(peer)
        status, _, said = server.wait()
    return status, said


def go_ahead_twice(peer: Peer) -> None:
    """As if it had read and written, with nothing written."""
    for _ in range(2):
        peer.receive()
        peer.send(bytes(16))


def test_wrong_data_is_found_if_asked_for() -> None:
    status, said = server_that(go_ahead_twice, "-V")
    assert (status, said) == (1, "livedma: data mismatch! (ping 0)\n")
    assert server_that(go_ahead_twice)[0] == 0


def test_a_message_of_another_length_is_no_rping() -> None:
    status, said = server_that(lambda peer: peer.send(b"hello"))
    assert status == 1 and "bogus data, size 5" in said
    status, said = client_that(lambda peer: peer.send(b"hello"))
    assert status == 1 and "bogus data, size 5" in said


def test_a_server_that_leaves_is_noticed() -> None:
    status, said = server_that(lambda peer: peer.connection.disconnect())
    assert status == 1 and "ended the connection after 0 pings" in said


@pytest.mark.parametrize("length", [0, 65536, 0xFFFFFFFF])
def test_an_offer_that_is_too_large_or_nothing_is_refused(length: int) -> None:
    status, said = client_that(lambda peer: peer.send(peer.info(length)))
    assert status == 1 and f"offers {length} bytes" in said


def test_a_sink_that_is_too_small_is_not_overrun() -> None:
    def offer(peer: Peer) -> None:
        peer.memory[1000:1100] = b"x" * 100
        peer.send(peer.info(100))
        peer.receive()
        peer.send(peer.info(50, offset=2000))

    status, said = client_that(offer)
    assert status == 1 and "takes 50 bytes only" in said


def test_memory_that_is_not_there_is_an_error() -> None:
    status, said = client_that(lambda peer: peer.send(peer.info(100, offset=1 << 40)))
    assert status == 1 and "REM_ACCESS_ERR" in said


def test_what_cannot_be_printed_is_not() -> None:
    address = loopback_address()
    with (
        serving("livedma", "rping", "-s", "-a", address, "-v") as server,
        device_towards(address, 0) as device,
    ):
        peer = Peer(device)
        peer.connection = cm.connect(device, address, int(PORT), timeout=PATIENCE_S, **peer.setup)
        peer.memory[1000:1006] = b"\x1b[2J\xff\n"
        peer.send(peer.info(7))
        peer.receive()
        peer.connection.disconnect()
        _, out, _ = server.wait()
    assert out == "server ping data: \\x1b[2J\\xff\\x0a\n"


def test_nobody_serves() -> None:
    address = loopback_address()
    with Device(address) as device:
        cm.manager(device)
        done = run("livedma", "rping", "-c", "-a", address)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"livedma rping -s -a {address} -p {PORT}" in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("", "one of the arguments -s -c is required"),
        ("-s -c", "not allowed with"),
        ("-c", "needs -a ADDR"),
        ("-c -a ::1 -P", "-P is for servers"),
        ("-c -a ::1 -S 22", "23 to 65535"),
        ("-c -a ::1 -S 64KiB", "23 to 65535"),
        ("-c -a ::1 -C none", "is no number"),
        ("-s -p 70000", "1 to 65535"),
        ("-s -I 127.0.0.1", "are for the client"),
    ],
)
def test_wrong_use(argv: str, says: str) -> None:
    done = run("livedma", "rping", *argv.split())
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("-c -a no.such.host.invalid", "no address, and no name"),
        ("-s -a 192.0.2.77", "see `ip address`"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(argv: str, says: str) -> None:
    done = run("livedma", "rping", *argv.split())
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1 and says in done.stderr


def test_help_has_an_example() -> None:
    assert "livedma rping -c -a 10.0.0.1 -C 10 -v -V" in run("livedma", "rping", "--help").stdout
