# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's device and our memory that is there on demand: it comes back, and sees no error."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import scenarios
from endpoints import Attributes, Endpoint, Rxe, Work
from ours import OnDemandMemory, Ours, OursOnDemand
from scenarios import HALF, Link, linked

pytestmark = pytest.mark.slow

PAGE = 4096
PATIENT = Attributes(rnr_retry=7, min_rnr_timer=1)
RELIABLE = [s for s in scenarios.RELIABLE if s is not scenarios.invalidate]


@pytest.fixture(params=["ipv4"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lazy(ours: Ours) -> OursOnDemand:
    return OursOnDemand(ours.device)


def run(a: Endpoint, b: Endpoint, scenario: Callable[[Link], None]) -> None:
    with linked(a, b, "RC", 4, PATIENT) as link:
        scenario(link)
        assert (link.a.qp.state, link.b.qp.state) == ("RTS", "RTS")
        link.a.no_more()
        link.b.no_more()


@pytest.mark.parametrize("scenario", RELIABLE, ids=lambda s: s.__name__)
def test_the_kernel_comes_back(
    kernel: Rxe, lazy: OursOnDemand, scenario: Callable[[Link], None]
) -> None:
    naks, heard = lazy.device.counters["page_naks"], kernel.counters()["rcvd_rnr_err"]
    run(kernel, lazy, scenario)
    sent = lazy.device.counters["page_naks"] - naks
    assert sent > 0
    assert kernel.counters()["rcvd_rnr_err"] - heard == sent


@pytest.mark.parametrize("scenario", RELIABLE, ids=lambda s: s.__name__)
def test_our_own_requests_wait(
    kernel: Rxe, lazy: OursOnDemand, scenario: Callable[[Link], None]
) -> None:
    before = lazy.device.counters["page_waits"]
    run(lazy, kernel, scenario)
    assert lazy.device.counters["page_waits"] > before


@contextmanager
def forgetting(memory: OnDemandMemory) -> Iterator[None]:
    """The program keeps taking pages from the device, whose content stays."""
    is_over = threading.Event()

    def work() -> None:
        chance = random.Random(1)
        while not is_over.wait(chance.random() * 2e-3):
            page = chance.randrange(scenarios.SIZE // PAGE)
            memory.forget(page * PAGE, min(8, scenarios.SIZE // PAGE - page) * PAGE)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.parametrize("operation", ["WRITE", "READ", "SEND"])
def test_pages_come_and_go_under_the_kernel(
    kernel: Rxe, lazy: OursOnDemand, operation: str
) -> None:
    """One connection for all of it."""
    heard = kernel.counters()["rcvd_rnr_err"]
    with linked(kernel, lazy, "RC", 4, PATIENT) as link:
        memory = link.b.memory
        assert isinstance(memory, OnDemandMemory)
        filled, other = (memory, link.a.memory)[:: -1 if operation != "READ" else 1]
        with forgetting(memory):
            for number in range(40):
                filled.fill(0, HALF, number)
                if operation == "SEND":
                    link.b.qp.receive([(number, [link.b.at(0, HALF)])])
                link.a.qp.send([Work(number, operation, [link.a.at(0, HALF)], **link.remote(0))])
                (done,) = link.sent()
                assert (done.wr_id, done.status) == (number, "SUCCESS")
                assert other.digest(0, HALF) == filled.digest(0, HALF)
        assert (link.a.qp.state, link.b.qp.state) == ("RTS", "RTS")
    assert kernel.counters()["rcvd_rnr_err"] > heard
