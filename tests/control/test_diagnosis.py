# SPDX-License-Identifier: BSD-2-Clause
"""Traps: what looks like one limit and is another, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from storage_model import Link, Model

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Diagnosis, Limit, Objectives
from livedma.monitor.snapshot import Snapshot, Source

INTERVAL_S = 0.1


def slow_store(seed: int = 0, source: Source = "server") -> Model:
    model = Model(seed, source)
    model.store_s, model.cpu_s = 0.02, 1e-5
    return model


def ramp(model: Model, link: Link, sessions: int, depth: int, seconds: float = 1.0) -> None:
    for number in range(sessions):
        model.agenda.after(seconds * number / sessions, lambda: link.add_session(depth) and None)


def watch(model: Model, seconds: float, diagnostician: Diagnostician) -> list[Diagnosis]:
    """The diagnoses of the first connection."""
    return [diagnostician.see(model.run(INTERVAL_S))[0] for _ in range(round(seconds / INTERVAL_S))]


def limits(found: Iterable[Diagnosis]) -> set[Limit]:
    return {one.limit for one in found}


def degraded(found: Iterable[Diagnosis]) -> set[Limit]:
    return {one.limit for one in found if one.is_degraded}


def full(sources: Source = "server", **link: int) -> tuple[Model, Link]:
    """64 sessions of 3 want 192 calls, of which 64 have credits and 56 have buffers."""
    model = slow_store(source=sources)
    made = model.add_link(**{"credits_": 64, "buffers": 56, "size": 65536, **link})
    made.way.seconds = 1e-4
    return model, made


def test_memory_when_credits_are_used_up_as_well() -> None:
    model, link = full()
    ramp(model, link, 64, 3)
    found = watch(model, 3, Diagnostician())
    assert degraded(found) == {Limit.MEMORY}
    assert limits(found[10:]) == {Limit.MEMORY}
    assert "56 buffers are taken" in found[-1].sentence
    assert found[-1].evidence["taken_buffers"] == 56


def test_what_limits_it_changes_too_often_to_be_named() -> None:
    """On a host that has other things to do, now and then."""
    model, link = full()
    ramp(model, link, 8, 3, 0.1)
    diagnostician = Diagnostician()
    watch(model, 1, diagnostician)
    for _ in range(56):
        link.add_session(3)
    found = []
    for number in range(10):
        seen = model.run(INTERVAL_S)
        if number % 2:
            seen = replace(seen, host=replace(seen.host, cpu_busy=1.0))
        found += diagnostician.see(seen)
    unnamed = [one for one in found if one.is_degraded and one.limit is Limit.NOTHING]
    assert unnamed
    for one in unnamed:
        assert "does all that is asked" not in one.sentence
        assert one.sentence.startswith("it is slow, and what limits it changes: ")


def test_it_is_said_within_three_snapshots() -> None:
    model, link = full()
    diagnostician = Diagnostician()
    ramp(model, link, 8, 3, 0.1)
    assert degraded(watch(model, 1, diagnostician)) == set()
    for _ in range(56):
        link.add_session(3)
    assert degraded(watch(model, 0.3, diagnostician)) == {Limit.MEMORY}


def test_credits_when_buffers_are_free() -> None:
    model, link = full(credits_=16)
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 3, Diagnostician())) == {Limit.CREDITS}


def test_no_credits_are_missed_by_a_client_that_asks_for_no_more() -> None:
    model, link = full(buffers=100)
    ramp(model, link, 32, 2)  # 64, as many as there are
    assert degraded(watch(model, 3, Diagnostician())) == set()


def test_credits_are_free_though_long_calls_end_together() -> None:
    """What ends within a snapshot may have been begun several snapshots ago."""
    model, link = full(credits_=88, buffers=100)
    model.store_s = 0.5
    link.add_session(64)
    link.asked = 128  # as Linux's client does, whatever its slots are
    found = watch(model, 6, Diagnostician())
    assert limits(found[10:]) == {Limit.NOTHING}
    assert max(one.evidence["in_progress_calls"] for one in found) <= 64


def test_slots_when_credits_are_free() -> None:
    model, link = full()
    for _ in range(4):
        link.add_session(16, slots=4, asked=16)
    found = watch(model, 2, Diagnostician())
    assert degraded(found) == {Limit.SLOTS}
    assert "4 sessions use all slots" in found[-1].sentence


def test_all_slots_are_enough_for_who_asked_for_no_more() -> None:
    model, link = full()
    for _ in range(4):
        link.add_session(4)
    assert limits(watch(model, 2, Diagnostician())) == {Limit.NOTHING}


def test_storage_when_its_queue_holds_all_buffers() -> None:
    model, link = full()
    model.store.width = 8
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 4, Diagnostician())) == {Limit.STORAGE}


def test_storage_whose_queue_cannot_be_seen() -> None:
    """As below a filesystem: accesses take longer, and no more are made."""
    model, link = full()
    model.store.width, model.hides_queue = 8, True
    ramp(model, link, 64, 3, 4.0)
    found = watch(model, 6, Diagnostician())
    assert degraded(found) == {Limit.STORAGE}
    assert "did as much with" in found[-1].sentence


@pytest.mark.parametrize("store_s", [0.01, 0.2, 1.0])
def test_memory_when_the_store_is_slow_but_not_full(store_s: float) -> None:
    model, link = full()
    model.store_s = store_s
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 2 + 3 * store_s, Diagnostician())) == {Limit.MEMORY}


def test_cpu_when_the_thread_has_no_time_left() -> None:
    model, link = full()
    model.store_s, model.cpu_s = 1e-4, 1e-3
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 2, Diagnostician())) == {Limit.CPU}


def test_cpu_when_accesses_wait_for_threads_of_an_idle_store() -> None:
    model, link = full()
    ramp(model, link, 64, 3)

    def starved(snapshot: Snapshot) -> Snapshot:
        (connection,) = snapshot.connections
        assert connection.inside is not None
        storage = connection.inside.storage
        queue = replace(storage, sum_ns=storage.sum_ns * 995 // 1000)
        inside = replace(connection.inside, storage_queue=queue)
        return replace(snapshot, connections=(replace(connection, inside=inside),))

    found = watch_changed(model, 3, starved)
    assert degraded(found) == {Limit.CPU}
    assert "thread" in found[-1].sentence


def watch_changed(
    model: Model, seconds: float, change: Callable[[Snapshot], Snapshot]
) -> list[Diagnosis]:
    diagnostician = Diagnostician()
    return [
        diagnostician.see(change(model.run(INTERVAL_S)))[0]
        for _ in range(round(seconds / INTERVAL_S))
    ]


def test_network_when_lost_packets_hold_the_buffers() -> None:
    model, link = full()
    link.way.loss, link.way.retry_s = 0.2, 0.02
    ramp(model, link, 64, 3)
    found = watch(model, 4, Diagnostician())
    assert limits(found[25:]) == {Limit.NETWORK}
    assert Limit.MEMORY not in degraded(found)


def test_network_when_it_stands_still_for_each_loss() -> None:
    model, link = full(buffers=200, credits_=256)
    model.store_s = 0.005
    link.way.loss, link.way.retry_s = 0.002, 0.5
    ramp(model, link, 16, 2)
    found = watch(model, 8, Diagnostician())
    assert limits(found[40:]) == {Limit.NETWORK}
    assert "nothing moves" in found[-1].sentence


def test_memory_in_spite_of_a_packet_lost_now_and_then() -> None:
    model, link = full()
    link.way.loss, link.way.retry_s = 0.001, 0.002
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 3, Diagnostician())) == {Limit.MEMORY}


def test_send_queue() -> None:
    model, link = full(sends=8)
    model.store_s, link.way.seconds = 0.001, 0.02
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 3, Diagnostician())) == {Limit.SEND_QUEUE}


def test_the_client_when_it_does_not_take_its_data() -> None:
    model, link = full()
    model.store_s, link.client_s = 0.001, 0.004
    ramp(model, link, 64, 3)
    assert degraded(watch(model, 4, Diagnostician())) == {Limit.PEER}


def test_nothing_when_there_is_little_to_do_or_nothing() -> None:
    model, link = full()
    diagnostician = Diagnostician()
    idle = watch(model, 1, diagnostician)
    link.add_session(4)
    light = watch(model, 1, diagnostician)
    assert limits(idle + light) == {Limit.NOTHING}
    assert degraded(idle + light) == set()
    assert idle[-1].sentence == "nothing is asked of it"


def test_nothing_for_a_single_burst() -> None:
    model, link = full(credits_=256)
    diagnostician = Diagnostician()
    link.add_session(2)
    found = watch(model, 1, diagnostician)
    burst = [link.add_session(3) for _ in range(40)]
    for session in burst:
        session.is_active = False
    found += watch(model, 2, diagnostician)
    assert degraded(found) == set()


def test_it_is_over_when_there_is_more_memory() -> None:
    model, link = full(credits_=256)
    diagnostician = Diagnostician()
    ramp(model, link, 32, 4)
    assert watch(model, 2, diagnostician)[-1].is_degraded
    link.buffers.places = 200
    link.buffers.serve()
    found = watch(model, 1, diagnostician)
    assert (found[-1].limit, found[-1].is_degraded) == (Limit.NOTHING, False)


def test_connections_are_told_apart() -> None:
    model, short = full()
    light = model.add_link(credits_=64, buffers=56, size=65536)
    ramp(model, short, 64, 3)
    light.add_session(2)
    diagnostician = Diagnostician()
    for _ in range(30):
        first, second = diagnostician.see(model.run(INTERVAL_S))
    assert (first.connection, first.limit) == (1, Limit.MEMORY)
    assert (second.connection, second.limit, second.is_degraded) == (2, Limit.NOTHING, False)


def test_from_outside_only_credits_can_be_named() -> None:
    model, link = full("bpf")
    ramp(model, link, 64, 3)
    found = watch(model, 3, Diagnostician())
    assert degraded(found) == {Limit.CREDITS}
    assert "only the server itself would know" in found[-1].sentence


def test_from_outside_a_server_that_is_full_is_slow_for_unknown_reasons() -> None:
    model, link = full("bpf", credits_=256, buffers=256)
    model.store.width = 8
    ramp(model, link, 32, 3, 3.0)
    found = watch(model, 5, Diagnostician())
    assert (found[-1].limit, found[-1].is_degraded) == (Limit.NOTHING, True)
    assert "only the server itself would know" in found[-1].sentence


def test_an_objective_that_is_missed_without_any_waiting() -> None:
    model, link = full()
    link.add_session(4)
    found = watch(model, 1, Diagnostician(Objectives(p99_ns=5_000_000)))
    assert (found[-1].limit, found[-1].is_degraded) == (Limit.STORAGE, True)
    assert "not 5 ms" in found[-1].sentence


def test_an_objective_that_is_met_although_some_wait() -> None:
    model, link = full(credits_=256)
    ramp(model, link, 24, 3)  # 72 calls want 56 buffers
    fast_enough = watch(model, 3, Diagnostician(Objectives(p99_ns=100_000_000)))
    assert degraded(fast_enough) == set()
    assert fast_enough[-1].limit is Limit.MEMORY
    assert watch(model, 1, Diagnostician())[-1].is_degraded


def test_an_objective_says_little_of_calls_that_wait_at_the_client() -> None:
    model, link = full()
    ramp(model, link, 64, 3)
    assert watch(model, 3, Diagnostician(Objectives(p99_ns=100_000_000)))[-1].is_degraded


def test_connections_that_are_gone_are_forgotten() -> None:
    model, link = full()
    ramp(model, link, 64, 3)
    diagnostician = Diagnostician()
    watch(model, 3, diagnostician)
    snapshot = model.run(INTERVAL_S)
    assert diagnostician.see(replace(snapshot, connections=())) == ()
    (again,) = diagnostician.see(snapshot)
    assert (again.limit, again.is_degraded) == (Limit.NOTHING, False)


@pytest.mark.parametrize("interval_s", [0.0, -3.0, 86400.0])
def test_an_absurd_interval_changes_nothing(interval_s: float) -> None:
    model, link = full()
    ramp(model, link, 64, 3)
    diagnostician = Diagnostician()
    before = watch(model, 3, diagnostician)[-1]
    absurd = replace(model.run(INTERVAL_S), interval_s=interval_s)
    assert diagnostician.see(absurd) == (before,)
    assert Diagnostician().see(absurd) == ()
