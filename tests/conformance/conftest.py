"""Kernels to conform with, with room for packets of 4096 bytes, and our device beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from endpoints import Endpoint, Rxe, rxe
from ours import Ours, our_device

from livedma.lab.guest import Lab


@pytest.fixture(scope="package")
def kernels(guests: Lab) -> Iterator[tuple[Rxe, Rxe]]:
    """The devices of guests a and b."""
    with guests.mtu(4500), rxe(guests.a) as a, rxe(guests.b) as b:
        yield a, b


@pytest.fixture(scope="package")
def kernel(kernels: tuple[Rxe, Rxe]) -> Rxe:
    """The device that ours talks to."""
    return kernels[0]


@pytest.fixture(scope="package")
def our_devices(guests: Lab) -> Iterator[dict[int, Ours]]:
    """Ours, by IP version."""
    with contextlib.ExitStack() as stack:
        yield {version: stack.enter_context(our_device(guests.host, version)) for version in (4, 6)}


@pytest.fixture(params=[4, 6], ids=["ipv4", "ipv6"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def ours(our_devices: dict[int, Ours], version: int) -> Ours:
    return our_devices[version]


@pytest.fixture(params=["we-ask", "kernel-asks"])
def pair(request: pytest.FixtureRequest, ours: Ours, kernel: Rxe) -> tuple[Endpoint, Endpoint]:
    """The requester, then the responder."""
    return (ours, kernel) if request.param == "we-ask" else (kernel, ours)
