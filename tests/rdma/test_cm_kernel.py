# SPDX-License-Identifier: BSD-2-Clause
"""The connection manager and that of a real kernel, as librdmacm's own programs use it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from livedma.rdma import Device, QueuePair, cm

if TYPE_CHECKING:
    from livedma.lab.guest import Lab

pytestmark = pytest.mark.slow

HOST = {4: "10.77.0.254", 6: "fd77::254"}
PATIENCE = 60.0
# What librdmacm's programs use without being told.
CMATOSE_PORT, UDADDY_PORT = 7471, 7174
MESSAGES, SIZE = 10, 100


@contextmanager
def device_beside(guests: Lab, version: int = 4) -> Iterator[Device]:
    with guests.host.inside():
        device = Device(HOST[version])
    with device:
        yield device


def address_of(guests: Lab, version: int) -> str:
    address = guests.a.ipv4 if version == 4 else guests.a.ipv6
    guests.a.run(
        f"ping -c 1 -W 20 {HOST[version]}", check=True
    )  # the kernel's CM does not wait long
    return address


def statuses(connection: cm.Connection, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        more = connection.cq.wait(PATIENCE)
        assert more, f"{len(found)} of {count} completions came"
        found += [completion.status for completion in more]
    return found


class Messages:
    """Memory for what a peer sends, posted before it can."""

    def __init__(self, device: Device) -> None:
        self.pd = device.protection_domain()
        self.memory = bytearray(MESSAGES * SIZE)
        self.region = self.pd.register(self.memory)

    def post(self, qp: QueuePair) -> None:
        for number in range(MESSAGES):
            qp.post_recv(number, [self.region[number * SIZE : (number + 1) * SIZE]])

    def send(self, qp: QueuePair) -> None:
        for number in range(MESSAGES):
            qp.post_send(number, "SEND", [self.region[number * SIZE : (number + 1) * SIZE]])


@pytest.mark.parametrize("version", [4, 6])
def test_we_connect_to_a_kernel(guests: Lab, version: int) -> None:
    """A server of ucmatose sends messages, gets as many, and disconnects."""
    server = address_of(guests, version)
    with device_beside(guests, version) as device:
        messages = Messages(device)
        with guests.a.command(f"ucmatose -b {server} -C {MESSAGES} -S {SIZE}") as serving:
            guests.a.wait_until(f"rdma resource show cm_id | grep -q 'LISTEN.*{CMATOSE_PORT}'")
            with cm.connect(
                device,
                server,
                CMATOSE_PORT,
                path_mtu=1024,  # the guest's; this side of the bridge could do more
                pd=messages.pd,
                prepare=messages.post,
                timeout=PATIENCE,
            ) as connection:
                assert statuses(connection, MESSAGES) == ["SUCCESS"] * MESSAGES
                messages.send(connection.qp)
                assert statuses(connection, MESSAGES) == ["SUCCESS"] * MESSAGES
                assert connection.wait_disconnected(PATIENCE)
            served = serving.wait(PATIENCE)
        assert served.returncode == 0, served.stdout + served.stderr
        assert "return status 0" in served.stdout


@pytest.mark.parametrize("version", [4, 6])
def test_a_kernel_connects_to_us(guests: Lab, version: int) -> None:
    address_of(guests, version)
    with device_beside(guests, version) as device, cm.listen(device, CMATOSE_PORT) as listener:
        messages = Messages(device)
        command = f"ucmatose -s {device.address} -C {MESSAGES} -S {SIZE}"
        with guests.a.command(command) as asking:
            request = listener.get(PATIENCE)
            with request.accept(
                pd=messages.pd, prepare=messages.post, timeout=PATIENCE
            ) as connection:
                messages.send(connection.qp)
                assert statuses(connection, 2 * MESSAGES) == ["SUCCESS"] * 2 * MESSAGES
                connection.disconnect(timeout=PATIENCE)
            asked = asking.wait(PATIENCE)
        assert asked.returncode == 0, asked.stdout + asked.stderr


def test_many_connections_of_a_kernel(guests: Lab) -> None:
    count = 20
    address_of(guests, 4)
    with (
        device_beside(guests) as device,
        cm.listen(device, CMATOSE_PORT) as listener,
        ThreadPoolExecutor(count) as threads,
    ):
        command = f"ucmatose -s {device.address} -c {count} -C 0"
        with guests.a.command(command) as asking:
            accepting = [
                threads.submit(listener.get(PATIENCE).accept, timeout=PATIENCE)
                for _ in range(count)
            ]
            connections = [one.result(PATIENCE) for one in accepting]
            for connection in connections:
                connection.disconnect(timeout=PATIENCE)
                connection.close()
            asked = asking.wait(PATIENCE)
        assert asked.returncode == 0, asked.stdout + asked.stderr


def test_a_kernel_is_told_that_nobody_listens_or_wants_it(guests: Lab) -> None:
    address_of(guests, 4)
    with device_beside(guests) as device, cm.listen(device, CMATOSE_PORT + 1) as listener:
        done = guests.a.run(f"ucmatose -s {device.address} -p {CMATOSE_PORT}", PATIENCE)
        assert "RDMA_CM_EVENT_REJECTED, error: 8" in done.stdout + done.stderr
        command = f"ucmatose -s {device.address} -p {CMATOSE_PORT + 1}"
        with guests.a.command(command) as asking:
            listener.get(PATIENCE).reject(b"no")
            asked = asking.wait(PATIENCE)
        assert "RDMA_CM_EVENT_REJECTED, error: 28" in asked.stdout + asked.stderr


def test_a_kernel_tells_us_that_nobody_listens(guests: Lab) -> None:
    server = address_of(guests, 4)
    with (
        device_beside(guests) as device,
        pytest.raises(cm.RejectedError, match="invalid service ID"),
    ):
        cm.connect(device, server, 7999, timeout=PATIENCE)


def test_a_program_that_vanishes_disconnects_us(guests: Lab) -> None:
    """Its kernel does that for it."""
    address_of(guests, 4)
    with (
        device_beside(guests) as device,
        cm.listen(device, CMATOSE_PORT) as listener,
        guests.a.command(f"exec ucmatose -s {device.address} -C {MESSAGES}"),
    ):
        connection = listener.get(PATIENCE).accept(timeout=PATIENCE)
        guests.a.run("pkill -9 ucmatose", check=True)
        assert connection.wait_disconnected(PATIENCE)


def test_a_kernels_datagram_service_is_found(guests: Lab) -> None:
    server = address_of(guests, 4)
    is_listening = f"rdma resource show cm_id | grep -q 'LISTEN.*{UDADDY_PORT}'"
    with device_beside(guests) as device:
        with guests.a.command(f"udaddy -b {server}"):
            guests.a.wait_until(is_listening)
            found = cm.resolve(device, server, UDADDY_PORT, timeout=PATIENCE)
            assert found.address == server and found.qpn > 1 and found.qkey == 0x01234567
            guests.a.run("pkill udaddy")
            guests.a.wait_until(f"! {is_listening}")
        with pytest.raises(cm.ConnectError, match="unsupported service ID"):
            cm.resolve(device, server, UDADDY_PORT, timeout=PATIENCE)


def test_a_kernel_finds_our_datagram_service(guests: Lab) -> None:
    address_of(guests, 4)
    with device_beside(guests) as device:
        pd, cq = device.protection_domain(), device.completion_queue()
        qp = pd.queue_pair("UD", cq)
        qp.modify("INIT", qkey=0x01234567)
        memory = bytearray(40 + SIZE)
        with pd.register(memory) as region:
            qp.post_recv(1, [region[:]])
            qp.modify("RTR", dst=device.address)
            qp.modify("RTS")
            with (
                cm.announce(device, UDADDY_PORT, qp),
                guests.a.command(f"udaddy -s {device.address} -C 1 -S {SIZE}"),
            ):
                (completion,) = cq.wait(PATIENCE)
                assert (completion.status, completion.length) == ("SUCCESS", 40 + SIZE)
                assert completion.imm == completion.src_qp  # as udaddy tells who it is
                guests.a.run("pkill udaddy")
