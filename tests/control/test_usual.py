# SPDX-License-Identifier: BSD-2-Clause
"""What is usual for a connection: learnt while it is well, and kept while it is slow."""

from __future__ import annotations

import pytest

from livedma.control.diagnose.usual import UsualLatency


def test_it_is_unknown_until_the_connection_was_well() -> None:
    usual = UsualLatency()
    usual.see(0.5, 0.5, is_slow=True)
    usual.see(0.0, 0.5, is_slow=False)
    assert usual.p99_s is None
    usual.see(0.02, 0.5, is_slow=False)
    assert usual.p99_s == 0.02


def test_a_slow_time_does_not_become_usual() -> None:
    usual = UsualLatency()
    usual.see(0.02, 0.5, is_slow=False)
    for _ in range(1000):
        usual.see(0.5, 0.5, is_slow=True)
    assert usual.p99_s == 0.02


def test_it_follows_what_the_store_takes_now() -> None:
    usual = UsualLatency()
    usual.see(0.02, 0.5, is_slow=False)
    for _ in range(400):
        usual.see(0.04, 0.5, is_slow=False)
    assert usual.p99_s == pytest.approx(0.04, rel=0.01)
