"""The scenarios between two kernels: whether they are right, and what the kernel really does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scenarios
from endpoints import Attributes, Rxe
from scenarios import Link, linked

pytestmark = pytest.mark.slow

Kernels = tuple[Rxe, Rxe]
RELIABLE = [
    scenarios.send,
    scenarios.scatter_and_gather,
    scenarios.write,
    scenarios.read,
    scenarios.atomics,
    scenarios.invalidate,
    scenarios.pipelined,
]
UNRELIABLE = [scenarios.send, scenarios.scatter_and_gather, scenarios.write]

versions = pytest.mark.parametrize("version", [4, 6])
mtus = pytest.mark.parametrize("mtu", [1024, 4096])


@versions
@mtus
@pytest.mark.parametrize("scenario", RELIABLE, ids=lambda s: s.__name__)
def test_reliable(
    kernels: Kernels, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with linked(*kernels, "RC", version, Attributes(mtu)) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()


@versions
@mtus
@pytest.mark.parametrize("scenario", UNRELIABLE, ids=lambda s: s.__name__)
def test_unreliable(
    kernels: Kernels, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with linked(*kernels, "UC", version, Attributes(mtu, access=("remote_write",))) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()


@versions
def test_datagrams(kernels: Kernels, version: int) -> None:
    with linked(*kernels, "UD", version, Attributes(4096)) as link:
        scenarios.datagrams(link)
        link.a.no_more()
        link.b.no_more()
