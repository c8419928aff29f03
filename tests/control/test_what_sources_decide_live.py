# SPDX-License-Identifier: BSD-2-Clause
"""What the server alone, the wire alone and both say of one real server: rows of the table in
diagnosis.md (`test_what_sources_decide` has them all, of made-up snapshots).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.control.live import LIMIT_S, PORT, SERVER, loaded

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Limit
from livedma.control.observe.inside import InsideSource
from livedma.control.observe.merge import merged
from livedma.monitor import Monitor
from livedma.nfs.load import Plan
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService
from livedma.rpc.rdma_server import Options
from served import served

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("bpf")]

MIB = 1 << 20
LOOK_S = 0.1
HEAVY = Plan(sessions=32, depth=4, size=8192, seconds=LIMIT_S, file_bytes=4 * 8192)
LIGHT = Plan(sessions=2, depth=1, size=8192, seconds=LIMIT_S, file_bytes=4 * 8192)
#: 64 credits and some 20 buffers; 8 credits and some 200 buffers.
FEW_BUFFERS = Options(window_bytes=16 * MIB, mapped_bytes=2 * MIB)
FEW_CREDITS = Options(window_bytes=16 * MIB, mapped_bytes=16 * MIB, credits=8)
ENOUGH = Options(window_bytes=16 * MIB, mapped_bytes=16 * MIB)

Said = tuple[Limit, Limit, Limit]


def diagnosed(service: NfsService, monitor: Monitor) -> Iterator[Said]:
    """What each source names, look by look."""
    inside = InsideSource(service)
    its = Diagnostician(), Diagnostician(), Diagnostician()
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        time.sleep(LOOK_S)  # the interval of the snapshots, as the controller has it
        own, wire = inside.snapshot(), monitor.snapshot()
        seen = own, wire, merged(own, wire)
        said = [one.see(snapshot) for one, snapshot in zip(its, seen, strict=True)]
        is_loaded = any(one.operations for one in own.connections)
        if is_loaded and all(len(one) == 1 for one in said):
            server, outside, both = (one[0].limit for one in said)
            yield server, outside, both


@pytest.mark.parametrize(
    ("options", "plan", "truth", "by_the_wire"),
    [
        (FEW_BUFFERS, HEAVY, Limit.MEMORY, {Limit.CREDITS}),
        (FEW_CREDITS, HEAVY, Limit.CREDITS, {Limit.CREDITS, Limit.NOTHING}),
        (ENOUGH, LIGHT, Limit.NOTHING, {Limit.NOTHING}),
    ],
)
def test_each_source_says_what_it_can(
    tmp_path: Path, options: Options, plan: Plan, truth: Limit, by_the_wire: set[Limit]
) -> None:
    config = Config(squash="none", store_delay_s=0.05)
    seen: list[Said] = []
    with (
        Monitor(["lo"], [PORT]) as monitor,
        served(tmp_path, SERVER, PORT, config=config, rdma=options) as service,
        loaded(plan),
    ):
        for server, wire, both in diagnosed(service, monitor):
            assert wire is not Limit.MEMORY, "the wire cannot know it"
            seen.append((server, wire, both))
            last = seen[-3:]
            if len(last) == 3 and all(
                (own, merged_) == (truth, truth) and outside in by_the_wire
                for own, outside, merged_ in last
            ):
                return
        pytest.fail(f"they never said it together, but {seen}")
