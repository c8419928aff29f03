# SPDX-License-Identifier: BSD-2-Clause
"""Forecasts, as the pure functions of snapshots that they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.control.plant import Pipe, Plant

from livedma.control.diagnose.forecast import Forecast, Forecaster
from livedma.control.diagnose.room import UNKNOWN, SessionRoom, Use, room_of
from livedma.monitor.snapshot import Snapshot


def forecasts(plant: Plant, wanted: Iterable[float]) -> list[Forecast | None]:
    forecaster, found = Forecaster(), []
    for calls in wanted:
        plant.pipe.wanted = round(calls)
        found.append(forecaster.see(plant.observe())[1].forecast)
    return found


def ramp(per_s: float, seconds: float) -> list[float]:
    return [per_s * number / 10 for number in range(round(10 * seconds))]


@settings(max_examples=50)
@given(per_s=st.floats(10, 60), each=st.sampled_from([0, 1, 3]))
def test_when_buffers_run_out_is_foretold(per_s: float, each: int) -> None:
    plant = Plant([Pipe(each=each)])
    lasts_s = 50 / per_s
    found = forecasts(plant, ramp(per_s, lasts_s))[-1]
    assert found is not None
    assert found.buffers == 56
    assert found.full_s == pytest.approx((56 - 50) / per_s, abs=0.3 + 3 / per_s)
    assert found.buffers_per_s == pytest.approx(per_s, rel=0.35)
    if each:
        assert found.sessions_per_s == pytest.approx(per_s / each, rel=0.5)
        assert "sessions more each second" in found.sentence


def test_it_is_said_in_a_sentence() -> None:
    found = Forecast(1, 1000.0, 0.8, 23.4, 1.0, 56, 40.0, 4.1)
    assert found.sentence == (
        "56 of 56 buffers in about 800 ms (4.1 sessions more each second): 23 are needed now"
    )
    assert replace(found, full_s=0.0).sentence.startswith("56 of 56 buffers any moment (4.1 ")
    alone = replace(found, sessions_per_s=0.0)
    assert "(40.0 buffers more each second)" in alone.sentence


@pytest.mark.slow
@given(level=st.integers(0, 56))
def test_a_constant_load_has_no_forecast(level: int) -> None:
    assert not any(forecasts(Plant([Pipe()]), [level] * 60))


@pytest.mark.slow
@given(low=st.integers(0, 20), high=st.integers(21, 56))
def test_a_jump_has_no_forecast(low: int, high: int) -> None:
    assert not any(forecasts(Plant([Pipe()], noise=0.01), [low] * 30 + [high] * 30))


def test_a_slow_rise_is_seen_over_a_longer_span() -> None:
    plant = Plant([Pipe()])
    found = forecasts(plant, [20 + one for one in ramp(3, 8)])
    assert found[5] is None
    assert found[-1] is not None and found[-1].buffers_per_s == pytest.approx(3, rel=0.4)


def test_calls_that_only_take_longer_have_no_forecast() -> None:
    """A store that gets slower makes calls hold buffers for longer; no more of them arrive."""
    plant, forecaster = Plant([Pipe(wanted=20)]), Forecaster()
    for _ in range(20):
        forecaster.see(plant.observe())
    for _ in range(30):
        plant.pipe.wanted += 1
        plant.delay_s = 0.02 * plant.pipe.wanted / 20
        assert forecaster.see(plant.observe())[1].forecast is None


def test_what_was_before_a_gap_does_not_count() -> None:
    plant, forecaster = Plant([Pipe()]), Forecaster()
    for wanted in range(10):
        plant.pipe.wanted = 3 * wanted
        forecaster.see(plant.observe())
    plant.at_s += 5
    plant.pipe.wanted += 3
    assert forecaster.see(plant.observe())[1].forecast is None


def without_inside(snapshot: Snapshot) -> Snapshot:
    blind = tuple(replace(one, inside=None) for one in snapshot.connections)
    return replace(snapshot, connections=blind)


def test_the_wire_alone_foretells_nothing() -> None:
    forecaster = Forecaster()
    for wanted in range(20):
        plant = Plant([Pipe(wanted=2 * wanted)], at_s=1000 + wanted / 10)
        outlook = forecaster.see(without_inside(plant.observe()))[1]
        assert (outlook.forecast, outlook.room) == (None, None)


def test_connections_over_tcp_are_left_out() -> None:
    snapshot = Plant([Pipe(wanted=20)]).observe()
    tcp = tuple(replace(one, transport="tcp", inside=None) for one in snapshot.connections)
    assert not Forecaster().see(replace(snapshot, connections=tcp))


def room(pipe: Pipe, uses: list[Use]) -> SessionRoom:
    (connection,) = Plant([pipe]).observe().connections
    assert connection.inside is not None
    return room_of(connection, connection.inside, uses)


def test_the_room_is_that_of_sessions_like_these() -> None:
    found = room(Pipe(), [Use(10, 30, 30)] * 4 + [Use(10, 40, 40)] + [Use(10, 32, 32)] * 5)
    assert (found.least, found.most) == (4, 7)  # 56 / 4 and 56 / 3.22, less the 10 that there are
    assert found.end_least is not None and found.end_least > 40
    assert found.sentence.startswith(
        "room for 4 to 7 more sessions like these (40 of 56 buffers at the busiest); "
    )
    assert found.sentence.endswith(" at the window's end")


def test_credits_may_be_what_there_is_least_of() -> None:
    found = room(Pipe(credits=32), [Use(10, 16, 20)] * 10)
    assert (found.least, found.most) == (6, 6)
    assert "room for 6 more sessions like these (20 of 32 credits at the busiest)" in found.sentence


def test_a_window_that_is_mapped_has_no_other_end() -> None:
    found = room(Pipe(window_bytes=4 << 20), [Use(10, 20, 20)] * 10)
    assert (found.end_least, found.end_most) == (found.least, found.most)
    assert "window" not in found.sentence


def test_where_all_is_used_there_is_no_room() -> None:
    found = room(Pipe(), [Use(20, 60, 60)] * 10)
    assert (found.least, found.most) == (0, 0)
    assert found.sentence.startswith("no room for more sessions like these (56 of 56 buffers")
    assert found.slow_sentence.startswith("no room for more sessions: it is slow already; ")


@pytest.mark.parametrize("uses", [[], [Use(0, 0, 0)] * 50, [Use(3, 0, 0)] * 50, [Use(1, 3, 3)] * 3])
def test_what_is_not_known_is_said(uses: list[Use]) -> None:
    found = room(Pipe(), uses)
    assert (found.least, found.most, found.sentence) == (None, None, UNKNOWN)


@pytest.mark.slow
@given(
    st.lists(
        st.builds(Use, st.integers(0, 50), st.integers(0, 300), st.integers(0, 300)), max_size=100
    ),
    st.integers(1, 250),
)
def test_the_least_is_never_more_than_the_most(uses: list[Use], buffers: int) -> None:
    found = room(Pipe(buffers=buffers, credits=buffers + 8), uses)
    if found.least is None:
        assert found.most is None and found.end_most is None
        return
    assert found.most is not None and found.end_least is not None and found.end_most is not None
    assert 0 <= found.least <= found.most <= found.end_most
    assert found.least <= found.end_least <= found.end_most


def test_sessions_that_rest_do_not_count() -> None:
    plant, forecaster = Plant([Pipe(wanted=30, each=3, idle=40)]), Forecaster()
    for _ in range(20):
        outlook = forecaster.see(plant.observe())[1]
    assert outlook.room is not None
    assert (outlook.room.least, outlook.room.most) == (8, 8)  # 56 / 3, less 10
