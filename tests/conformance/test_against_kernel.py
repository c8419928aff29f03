# SPDX-License-Identifier: BSD-2-Clause
"""Our device and the kernel's, on a good wire: both ask, both answer, and neither sees an error."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import scenarios
from counting import no_errors
from endpoints import Attributes, Endpoint, Rxe, Work
from ours import Ours
from refusals import REFUSALS, Refusal
from scenarios import Link, linked

from livedma.lab.guest import Lab
from wiretap import wiretap

pytestmark = pytest.mark.slow

Pair = tuple[Endpoint, Endpoint]
mtus = pytest.mark.parametrize("mtu", [1024, 4096])


def run(
    pair: Pair, kind: str, version: int, attributes: Attributes, scenario: Callable[[Link], None]
) -> None:
    with linked(*pair, kind, version, attributes) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()


@mtus
@pytest.mark.parametrize("scenario", scenarios.RELIABLE, ids=lambda s: s.__name__)
def test_reliable(
    kernel: Rxe, ours: Ours, pair: Pair, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with no_errors(kernel, ours) if scenario is not scenarios.invalidate else nullcontext():
        run(pair, "RC", version, Attributes(mtu), scenario)


@mtus
@pytest.mark.parametrize("scenario", scenarios.UNRELIABLE, ids=lambda s: s.__name__)
def test_unreliable(
    kernel: Rxe, ours: Ours, pair: Pair, version: int, mtu: int, scenario: Callable[[Link], None]
) -> None:
    with no_errors(kernel, ours):
        run(pair, "UC", version, Attributes(mtu), scenario)


def test_datagrams(kernel: Rxe, ours: Ours, pair: Pair, version: int) -> None:
    with no_errors(kernel, ours):
        run(pair, "UD", version, Attributes(4096), scenarios.datagrams)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda r: r.name)
def test_refusal(pair: Pair, version: int, refusal: Refusal) -> None:
    access = refusal.region_access
    with linked(*pair, "RC", version, refusal.attributes, region_access=access) as link:
        refusal.run(link)


@pytest.mark.parametrize("what", ["a region", "nothing"])
def test_what_may_not_be_invalidated(kernel: Rxe, ours: Ours, version: int, what: str) -> None:
    """A region that was not offered for it, or a key of nothing, is refused.

    A kernel's user space has only windows that a peer may invalidate; asked for anything else, it
    acknowledges first and gives up then, so only the other direction is asked for.
    """
    with linked(kernel, ours, "RC", version, Attributes()) as link:
        link.b.qp.receive([(1, [link.b.at(0, 64)])])
        rkey = link.b.memory.key if what == "a region" else 0x12345678
        link.a.qp.send([Work(1, "SEND_WITH_INV", [link.a.at(0, 64)], rkey=rkey)])
        assert [done.status for done in link.sent()] == ["REM_ACCESS_ERR"]
        assert [done.status for done in link.received()] == ["WR_FLUSH_ERR"]


def test_a_capture_of_it_is_whole(
    bpf: None, guests: Lab, pair: Pair, version: int, tmp_path: Path
) -> None:
    with wiretap(guests, guests.a, tmp_path / "it.pcapng") as tap:
        run(pair, "RC", version, Attributes(1024), scenarios.pipelined)
        run(pair, "UC", version, Attributes(4096), scenarios.send)
        run(pair, "UD", version, Attributes(4096), scenarios.datagrams)
    tap.assert_whole()
    assert {packet["src"] for packet in tap.packets} == {one.address(version) for one in pair}
    reliable = next(one for one in tap.connections() if one["transport"] == "RC")
    assert reliable["messages"] == {"SEND": 8, "WRITE": 8, "READ": 4, "FETCH_ADD": 4}
    # What is sent again since an answer came late is no refusal: each message was done once.
    assert reliable["naks"].keys() <= {"PSN sequence error"} and not reliable["rnr_naks"]
