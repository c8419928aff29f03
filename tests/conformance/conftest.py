# SPDX-License-Identifier: BSD-2-Clause
"""Kernels to conform with, with room for packets of 4096 bytes, and our device beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from endpoints import Endpoint, Rxe, rxe
from ours import Ours, our_device

from livedma.lab.guest import Lab
from livedma.rdma import PortKind


@pytest.fixture(scope="module")
def kernels(guests: Lab) -> Iterator[tuple[Rxe, Rxe]]:
    """The devices of guests a and b."""
    with guests.mtu(4500), rxe(guests.a) as a, rxe(guests.b) as b:
        yield a, b


@pytest.fixture(scope="module")
def kernel(kernels: tuple[Rxe, Rxe]) -> Rxe:
    """The device that ours talks to."""
    return kernels[0]


@dataclass(frozen=True)
class Place:
    """Where a device of ours is, and how its packets come in."""

    version: int
    address: str
    port: PortKind


PLACES = {
    "ipv4": Place(4, "10.77.0.254", "packet"),
    "ipv4-udp": Place(4, "10.77.0.253", "udp"),
    "ipv6": Place(6, "fd77::254", "udp"),
}


@pytest.fixture(scope="module")
def our_devices(guests: Lab, kernels: tuple[Rxe, Rxe]) -> Iterator[dict[str, Ours]]:
    """Ours, by the name of its place. After the kernels: a device has its interface's first MTU."""
    host, second = guests.host, PLACES["ipv4-udp"].address
    with host.netlink() as ip:
        ip.addr("add", index=host.ifindex, address=second, prefixlen=24)
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(our_device(host, place.address, place.port))
            for name, place in PLACES.items()
        }
    with host.netlink() as ip:
        ip.addr("del", index=host.ifindex, address=second, prefixlen=24)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def version(place: str) -> int:
    return PLACES[place].version


@pytest.fixture
def ours(our_devices: dict[str, Ours], place: str) -> Ours:
    return our_devices[place]


@pytest.fixture(params=["we-ask", "kernel-asks"])
def pair(request: pytest.FixtureRequest, ours: Ours, kernel: Rxe) -> tuple[Endpoint, Endpoint]:
    """The requester, then the responder."""
    return (ours, kernel) if request.param == "we-ask" else (kernel, ours)
