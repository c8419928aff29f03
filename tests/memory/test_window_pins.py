# SPDX-License-Identifier: BSD-2-Clause
"""Windows whose memory is kept in its place: what the kernel counts, limits, and who is charged."""

from __future__ import annotations

import logging
import os

import pytest
from windowed import PAGE

from kept import MIB, become_a_user, forbid_io_uring, in_a_process, locked, needs_pins, pinned
from livedma._native.rdma import Engine
from livedma.errors import BudgetError
from livedma.lab.experiment.huge_pages import reserved
from livedma.memory import Auto, Huge, Pool, Window, WindowPins, accounting, ledger, tenant
from needs import needs

HUGE = 2 << 20


class _Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@pytest.fixture(autouse=True)
def _pins() -> None:
    needs_pins()


def entries() -> list[ledger.Entry]:
    """Those of windows with a tenant: other tests' windows may still be there, and have none."""
    return [one for one in of_kind("window") if one.tenant]


def of_kind(kind: str) -> list[ledger.Entry]:
    return [one for one in ledger.read(os.getpid()) or [] if one.kind == kind]


def test_what_is_mapped_is_pinned_and_charged() -> None:
    before, charged, others = pinned(), accounting.process().charged, of_kind("pinned")
    pins = WindowPins(4 * MIB)
    assert pins.why_not == ""
    with Window(Engine(), 4 * MIB, pins=pins, tenant="them") as window:
        window.extend(MIB)
        window.extend(64 * PAGE)
        assert pinned() - before == window.pinned == window.linked == MIB + 64 * PAGE
        assert tenant("them").charged == window.linked
        assert accounting.process().charged - charged == window.linked
        (entry,) = entries()
        assert (entry.mapped, entry.pinned, entry.tenant) == (window.linked, window.linked, "them")
        assert of_kind("pinned") == others
        window.shrink()
        assert pinned() - before == window.pinned == window.linked > 0
        held = window.mapper().take(8 * PAGE)
        assert pinned() - before == window.linked
        held.release()
    assert (pinned(), tenant("them").charged) == (before, 0)
    assert accounting.process().charged == charged


def test_huge_pages_are_pinned_too() -> None:
    needs(os.geteuid() == 0, "setting huge pages aside needs root")
    with reserved(3 * HUGE) as there:
        needs(there >= 3 * HUGE, "memory is in pieces too small for huge pages")
        before = pinned()
        with Window(Engine(), 8 * HUGE, HUGE, pins=WindowPins(8 * HUGE), tenant="it") as window:
            window.extend(3 * HUGE)
            assert window.backing.kind == "hugetlb"
            assert pinned() - before == window.pinned == 3 * HUGE
        assert pinned() == before


@pytest.mark.parametrize("backing", [Auto, Huge])
def test_transparent_ones_are_pinned_too(backing: type[Auto | Huge]) -> None:
    before = pinned()
    pins = WindowPins(8 * HUGE)
    with Window(Engine(), 8 * HUGE, HUGE, pins=pins, tenant="it", backing=backing()) as window:
        window.extend(2 * HUGE)
        assert window.backing.kind in ("THP", "4 KiB pages", "hugetlb")
        assert pinned() - before == window.pinned == 2 * HUGE


def test_small_parts_have_small_pages_by_themselves() -> None:
    with Window(Engine(), 8 * HUGE, backing=Auto()) as window:
        window.extend(HUGE - PAGE)
        assert (window.backing.kind, window.backing.reason) == ("memfd", "")


def test_a_tenant_has_a_limit_that_others_do_not_feel() -> None:
    before, pins = pinned(), WindowPins(4 * MIB, limit=MIB)
    engine = Engine()
    with (
        Window(engine, 4 * MIB, pins=pins, tenant="one") as one,
        Window(engine, 4 * MIB, pins=pins, tenant="one") as more,
        Window(engine, 4 * MIB, pins=pins, tenant="other") as other,
    ):
        one.extend(MIB - PAGE)
        with pytest.raises(BudgetError, match=r"8 KiB more .* one may .*: 1020 KiB of 1 MiB are"):
            more.extend(2 * PAGE)
        assert more.linked == 0 and pinned() - before == one.linked
        more.extend(PAGE)
        other.extend(MIB)
        pins.limit = 2 * MIB  # from now on
        more.extend(MIB)
        assert pinned() - before == one.linked + more.linked + other.linked == 3 * MIB
    assert pinned() == before and tenant("one").charged == 0


def test_a_pool_says_whose_limit_it_is() -> None:
    pins = WindowPins(4 * MIB, limit=16 * PAGE)
    with Window(Engine(), 4 * MIB, pins=pins, tenant="it") as window:
        with pytest.raises(BudgetError, match="--pin-limit"):
            Pool(window.mapper(), PAGE, 8 * PAGE, minimum=20, short_shards=True)
        assert window.linked == 0 and tenant("it").charged == 0
        with Pool(window.mapper(), PAGE, 8 * PAGE, minimum=16) as pool:
            with pytest.raises(BudgetError, match="64 KiB of 64 KiB are taken"):
                pool.set_bounds(17)
            assert pool.stats.buffers == 16


def test_a_limit_that_a_window_does_not_fit_in() -> None:
    said = in_a_process(under_a_limit_of_4_mib)
    assert said == "done\n"


def under_a_limit_of_4_mib() -> None:
    become_a_user(4 * MIB)
    pins = WindowPins(4 * MIB + PAGE, limit=MIB)
    start, _, remedy = pins.why_not.partition("; ")
    assert start == (
        "DMA memory is not pinned: a connection may get 4100 KiB, and RLIMIT_MEMLOCK is 4 MiB"
    )
    assert "the kernel may page it out" in remedy and "LimitMEMLOCK=" in remedy
    assert "CAP_IPC_LOCK" in remedy and "\n" not in remedy
    with Window(Engine(), 4 * MIB, pins=pins, tenant="it") as window:
        window.extend(MIB)
        assert (pinned(), locked(), window.pinned) == (0, 0, 0)
        assert (tenant("it").charged, accounting.process().charged) == (MIB, 0)
        (entry,) = entries()
        assert (entry.mapped, entry.pinned) == (MIB, 0)
        with pytest.raises(BudgetError, match="1 MiB of 1 MiB are taken"):
            window.extend(PAGE)  # a tenant's limit counts without pins, too
    assert tenant("it").charged == 0
    print("done")


def test_a_limit_that_is_reached_later() -> None:
    said = in_a_process(until_the_limit)
    assert said == "done\n"


def until_the_limit() -> None:
    """Each part that has no room is mapped all the same, and only the first one is told."""
    told: list[str] = []
    logging.getLogger("livedma").addHandler(_Kept(told))
    become_a_user(4 * MIB + 128 * PAGE)  # the kernel charges for the ring, too
    pins = WindowPins(4 * MIB)
    assert pins.why_not == ""
    with Window(Engine(), 16 * MIB, pins=pins, tenant="it") as window:
        for _ in range(6):
            window.extend(MIB)
        assert (pinned(), window.pinned, window.linked) == (4 * MIB, 4 * MIB, 6 * MIB)
        assert tenant("it").charged == 6 * MIB
        (entry,) = entries()
        assert (entry.mapped, entry.pinned) == (6 * MIB, 4 * MIB)
        (line,) = told
        assert line.startswith("1 MiB of DMA memory for it is mapped, but not pinned: cannot pin")
        assert "RLIMIT_MEMLOCK is 4608 KiB" in line and "\n" not in line
        window.shrink(6 * MIB)
        assert (pinned(), window.linked, tenant("it").charged) == (0, 0, 0)
        for _ in range(5):
            window.extend(MIB)
        assert len(told) == 2, "there is a new shortage"
    print("done")


def test_without_io_uring_it_is_locked() -> None:
    said = in_a_process(without_io_uring)
    assert said == "done\n"


def without_io_uring() -> None:
    told: list[str] = []
    logging.getLogger("livedma").addHandler(_Kept(told))
    forbid_io_uring()
    pins = WindowPins(4 * MIB)
    assert pins.why_not.startswith("DMA memory is locked, not pinned: io_uring")
    assert "\n" not in pins.why_not
    with Window(Engine(), 4 * MIB, pins=pins, tenant="it") as window:
        window.extend(MIB)
        assert (pinned(), locked(), window.pinned) == (0, MIB, 0)
        assert tenant("it").charged == MIB
    assert (locked(), told) == (0, []), "its line at the start is all that there is to say"
    print("done")


def test_what_is_pinned_and_for_whom() -> None:
    first = ledger.record("window", granule=2 << 20, reserved=1 << 30, tenant="10.0.0.2")
    first.update(mapped=4 << 20, pinned=2 << 20)
    long = ledger.record("window", tenant="\N{SNOWMAN}" * 40)
    entry, longer = sorted(entries(), key=lambda one: one.tenant)  # places are taken in any order
    assert (entry.pinned, entry.tenant) == (2 << 20, "10.0.0.2")
    assert longer.tenant.startswith("\N{SNOWMAN}" * 21) and len(longer.tenant) <= 22
    long.remove()
    first.remove()
