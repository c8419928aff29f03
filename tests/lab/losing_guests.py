# SPDX-License-Identifier: BSD-2-Clause
"""Tests that lose a guest: not collected by name, tests/lab/test_lost_guests.py runs them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from livedma.lab.guest import Guest, Lab

_runs = itertools.count(1)


@pytest.fixture(scope="module")
def prepared(guests: Lab) -> Iterator[Guest]:
    """Something in a guest that a new one lacks, and that ends with an error in a dead one."""
    guests.a.run("touch /run/prepared", check=True)
    yield guests.a
    guests.a.run("rm /run/prepared", check=True)


def test_that_loses_its_guest_once(prepared: Guest) -> None:
    if next(_runs) == 1:
        prepared.run("echo c > /proc/sysrq-trigger")
    prepared.run("test -e /run/prepared", check=True)


def test_that_has_the_new_one(prepared: Guest) -> None:
    prepared.run("test -e /run/prepared", check=True)


def test_that_loses_each(prepared: Guest) -> None:
    prepared.run("echo c > /proc/sysrq-trigger")


def test_that_fails_with_its_guests_alive(guests: Lab) -> None:
    guests.b.run("false", check=True)
