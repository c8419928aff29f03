# SPDX-License-Identifier: BSD-2-Clause
"""A server under attack, which has to outlive all tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.nfs.besieged import Intruder, Siege, besieged

from needs import needs


# Not for longer: clients beside it work all the time, and pin memory that other tests count.
@pytest.fixture(scope="module")
def whole_siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    with besieged(tmp_path_factory.mktemp("siege")) as siege:
        yield siege


@pytest.fixture
def siege(whole_siege: Siege) -> Iterator[Siege]:
    """After each attack all has to be as before."""
    yield whole_siege
    whole_siege.check()


@pytest.fixture
def intruder(siege: Siege) -> Iterator[Intruder]:
    """Leaves politely, if it still can: the next one finds the server as this one did."""
    with Intruder(siege) as made:
        made.enter()
        yield made
        if not made.peer.failed:
            made.leave()
