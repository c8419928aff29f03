# SPDX-License-Identifier: BSD-2-Clause
"""A test whose guest's kernel died is run again, once, with new guests.

Guests run under QEMU's emulation, whose faults now and then kill a kernel in the middle of a test
that is not to blame. What a test itself does to a kernel, it does to the second one, too: then it
fails. The summary names each guest that was lost, and what its kernel said.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from livedma.lab.guest import Lab

LAB = pytest.StashKey["Lab"]()  #: of the session: the guests that tests share
LOST = pytest.StashKey[list[str]]()
_PATIENCE_S = 30.0
MOST = 3  #: times that guests are replaced; more often is no accident


def lost(lab: Lab) -> list[str]:
    """Which guests do not answer any more, and why."""
    from livedma.errors import LabError

    found = []
    for guest in lab.guests:
        try:
            guest.run("true", timeout_s=_PATIENCE_S)
        except LabError as error:
            found.append(str(error))
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if "guests" not in getattr(item, "fixturenames", ()):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    dead = _to_be_replaced(item, reports)
    if dead:
        item.session.stash[LOST].append(f"{item.nodeid}: {'; '.join(dead)}")
        # All fixtures end, those of the session, too. In a dead guest they cannot tidy up.
        with contextlib.suppress(Exception, BaseExceptionGroup):
            item.session._setupstate.teardown_exact(None)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _to_be_replaced(item: pytest.Item, reports: list[pytest.TestReport]) -> list[str]:
    """The guests whose end may be why the test failed."""
    lab = item.session.stash.get(LAB, None)
    before = item.session.stash.setdefault(LOST, [])
    if lab is None or len(before) >= MOST or not any(one.failed for one in reports):
        return []
    return lost(lab)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    session = terminalreporter._session
    for line in session.stash.get(LOST, []) if session is not None else ():
        terminalreporter.write_line(f"ran again with new guests: {line}")
