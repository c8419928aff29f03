"""Our device and the kernel's, on a good wire: both ask, both answer, and neither sees an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import scenarios
from endpoints import Attributes, Endpoint, Rxe
from ours import Ours
from refusals import REFUSALS, Refusal
from scenarios import Link, linked
from wiretap import wiretap

from livedma.lab.guest import Lab

pytestmark = pytest.mark.slow

Pair = tuple[Endpoint, Endpoint]
mtus = pytest.mark.parametrize("mtu", [1024, 4096])
#: Names of what both count when something goes wrong.
ERRORS = (
    *("duplicate_request", "out_of_seq_request", "rcvd_seq_err", "completer_retry_err"),
    *("rcvd_rnr_err", "send_rnr_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"),
)
OUR_ERRORS = (
    *ERRORS,
    *("ack_timeout", "dropped_icrc", "dropped_malformed", "dropped_no_qp", "dropped_not_peer"),
    *("dropped_response", "dropped_request", "remote_access_err", "remote_invalid_req_err"),
    "remote_op_err",
)


@contextlib.contextmanager
def no_errors(kernel: Rxe, ours: Ours) -> Iterator[None]:
    """Neither counts an error, and each counts the packets that the other sent."""
    before = kernel.counters(), ours.device.counters
    yield
    after = kernel.counters(), ours.device.counters
    for old, new, names in zip(before, after, (ERRORS, OUR_ERRORS), strict=True):
        assert {name: new[name] - old[name] for name in names} == dict.fromkeys(names, 0)
    theirs, own = ({k: new[k] - old[k] for k in new} for old, new in zip(before, after, strict=True))
    assert theirs["sent_pkts"] == own["rcvd_pkts"] > 0
    assert own["sent_pkts"] == theirs["rcvd_pkts"] > 0


@mtus
@pytest.mark.parametrize("scenario", scenarios.RELIABLE[:-2], ids=lambda s: s.__name__)
def test_reliable(
    *,
    kernel: Rxe,
    ours: Ours,
    pair: Pair,
    version: int,
    mtu: int,
    scenario: Callable[[Link], None],
) -> None:
    with no_errors(kernel, ours), linked(*pair, "RC", version, Attributes(mtu)) as link:
        scenario(link)
        link.a.no_more()
        link.b.no_more()
