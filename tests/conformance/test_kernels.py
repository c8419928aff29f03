# SPDX-License-Identifier: BSD-2-Clause
"""The scenarios between two kernels: whether they are right, and what the kernel really does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import scenarios
from endpoints import Attributes, Rxe
from refusals import REFUSALS, Refusal
from scenarios import Link, linked

pytestmark = pytest.mark.slow

Kernels = tuple[Rxe, Rxe]


@pytest.fixture(params=[4, 6])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


mtus = pytest.mark.parametrize("mtu", [1024, 4096])


@mtus
@pytest.mark.parametrize("scenario", scenarios.RELIABLE, ids=lambda s: s.__name__)
def test_reliable(
    kernels: Kernels, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with linked(*kernels, "RC", version, Attributes(mtu)) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()


@mtus
@pytest.mark.parametrize("scenario", scenarios.UNRELIABLE, ids=lambda s: s.__name__)
def test_unreliable(
    kernels: Kernels, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with linked(*kernels, "UC", version, Attributes(mtu)) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()


def test_datagrams(kernels: Kernels, version: int) -> None:
    with linked(*kernels, "UD", version, Attributes(4096)) as link:
        scenarios.datagrams(link)
        link.a.no_more()
        link.b.no_more()


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.name)
def test_refusal(kernels: Kernels, refusal: Refusal) -> None:
    access = refusal.region_access
    with linked(*kernels, "RC", 4, refusal.attributes, region_access=access) as link:
        refusal.run(link)
