# SPDX-License-Identifier: BSD-2-Clause
"""What happens to pools: as batches for Python, and as probes for bpftrace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from lender import Lender

from livedma._native import pool as native
from livedma._native.pool_events import EVENTS, NONE
from livedma.memory import Pool, PoolEvents
from livedma.memory.pool_columns import SCHEMA
from needs import needs

# A short life: (event, shard, buffer, control); what it does is in live().
STORY = [
    ("pool_create", None, None, False),
    ("shard_new", 0, None, False),
    ("buffer_take", 0, 0, False),
    ("buffer_take", 0, 1, True),
    ("buffer_wait", None, None, False),
    ("buffer_return", 0, 0, False),
    ("shard_free", 0, None, False),
    ("pool_destroy", None, None, False),
]
ARGUMENTS = {
    "pool_create": 4,
    "pool_destroy": 2,
    "shard_new": 4,
    "shard_free": 3,
    "buffer_take": 4,
    "buffer_return": 4,
    "buffer_wait": 5,
}
LIMIT_S = 60


def live() -> Pool:
    pool = Pool(Lender(room=1), 4096, 8192, reserve=1)
    data = pool.take()
    pool.take(control=True)
    with pytest.raises(TimeoutError):
        pool.take(timeout=0.001)
    data.release()
    pool.close()
    return pool


def test_a_reader_gets_the_story() -> None:
    with PoolEvents() as events:
        pool = live()
        read = [event for event in events.read() if event.pool == pool.number]
        assert events.read() == []
        assert events.lost == 0
    assert [(e.event, e.shard, e.buffer, e.control) for e in read] == STORY
    assert [e.time_ns for e in read] == sorted(e.time_ns for e in read)
    assert read[-1].time_ns <= time.monotonic_ns()
    create, new, *_, wait, _, free, destroy = read
    assert (create.value, new.value, free.value, destroy.value) == (4096, 2, 2, 1)
    assert wait.value >= 1_000_000


def test_the_same_as_columns() -> None:
    with PoolEvents() as events:
        pool = live()
        batch = events.batch()
    assert batch.schema.equals(SCHEMA, check_metadata=True)
    rows = [row for row in batch.to_pylist() if row["pool"] == pool.number]
    assert [(r["event"], r["shard"], r["buffer"], r["control"]) for r in rows] == STORY
    batch.validate(full=True)


def test_an_empty_batch_has_the_schema() -> None:
    with PoolEvents() as events:
        assert pa.Table.from_batches([events.batch()]).num_rows == 0


def test_who_waited_and_got_it_is_named() -> None:
    with Pool(Lender(room=1), 4096, 4096) as pool:
        taken = pool.take()
        with PoolEvents() as events:
            waiter = native.Waiter(pool)
            taken.release()
            read = events.read()
        assert waiter.claim() is not None
    assert [e.event for e in read] == ["buffer_return", "buffer_take", "buffer_wait"]
    assert (read[2].shard, read[2].buffer) == (0, 0)


def test_what_finds_no_room_is_counted() -> None:
    with Pool(Lender(), 4096) as pool, PoolEvents(8) as events:
        for _ in range(10):
            pool.take().release()
        assert len(events.read(3)) == 3
        assert events.lost == 1 + 20 - 8  # the shard, and ten times two
        assert len(events.read()) == 5
        assert events.read() == []


def test_events_begin_and_end_with_their_reader() -> None:
    with Pool(Lender(), 4096) as pool:
        pool.take().release()
        with PoolEvents() as events:
            assert events.read() == []
            with pytest.raises(ValueError, match="have a reader already"):
                PoolEvents()
        pool.take().release()
        assert events.read() == []
        events.close()
        with PoolEvents() as others:
            assert others.read() == []


def test_the_probes_are_in_the_extension() -> None:
    """Provider, names, arguments; each has one place and a semaphore."""
    needs(shutil.which("readelf"), "readelf is not installed")
    argv = ["readelf", "-n", "--wide", native.__file__]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    pattern = r"Provider: (\w+)\s+Name: (\w+)\s+Location: .*Semaphore: (\w+)\s+Arguments: (.*)"
    found = re.findall(pattern, text)
    assert {(provider, name): len(args.split()) for provider, name, _, args in found} == {
        ("livedma", name): count for name, count in ARGUMENTS.items()
    }
    assert len(found) == len(ARGUMENTS) == len(EVENTS)
    assert len({int(semaphore, 16) for *_, semaphore, _ in found} - {0}) == len(found)


USER = """
import sys
sys.path[:0] = sys.argv[1:]
from test_pool_events import live
print("loaded", flush=True)
sys.stdin.readline()
print(live().number)
"""


@pytest.fixture
def bpftrace(tracefs: None) -> None:
    needs(os.geteuid() == 0, "bpftrace needs root")
    needs(shutil.which("bpftrace"), "bpftrace is not installed")
    argv = ["timeout", str(LIMIT_S), "bpftrace", "-e", "BEGIN { exit(); }"]
    trial = subprocess.run(argv, capture_output=True, text=True, check=False)
    needs(trial.returncode == 0, f"bpftrace does not work here: {trial.stderr.strip()}")


def traced() -> tuple[int, list[tuple[str, list[int]]]]:
    """The number of a pool in another process, and what bpftrace saw of its life."""
    here = Path(__file__).parent
    program = 'BEGIN { printf("ready\\n"); }'
    for name, count in ARGUMENTS.items():
        values = ", ".join(f"arg{i}" for i in range(count))
        text = name + " %ld" * count
        program += f'usdt:{native.__file__}:livedma:{name} {{ printf("{text}\\n", {values}); }}'
    user_argv = [sys.executable, "-c", USER, str(here), str(here.parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(user_argv, stdin=pipe, stdout=pipe, text=True) as user:
        assert user.stdout is not None and user.stdout.readline() == "loaded\n"
        argv = ["timeout", str(LIMIT_S), "bpftrace", "-p", str(user.pid), "-e", program]
        with subprocess.Popen(argv, stdout=pipe, stderr=subprocess.STDOUT, text=True) as tracer:
            assert tracer.stdout is not None
            said = []
            while not said or said[-1] not in ("ready\n", ""):
                said.append(tracer.stdout.readline())
            number, _ = user.communicate("go\n", timeout=LIMIT_S)
            assert said[-1], "".join(said)
            lines = [line.split() for line in tracer.stdout if line.strip()]
    return int(number), [(name, [int(value) for value in values]) for name, *values in lines]


@pytest.mark.slow
@pytest.mark.usefixtures("bpftrace")
def test_bpftrace_sees_the_story() -> None:
    pool, events = traced()
    assert [name for name, _ in events] == [event for event, *_ in STORY]
    assert {values[0] for _, values in events} == {pool}
    seen = {name: values[1:] for name, values in events}
    assert seen["pool_create"] == [4096, 2, 1]  # bytes, buffers of a shard, reserve
    assert seen["shard_new"] == [0, 2, 1 << 40]  # its number, its buffers, its address
    assert seen["buffer_take"] == [0, 1, 1]  # the second one: shard, buffer, for control
    assert seen["buffer_return"] == [0, 0, 0]
    *nothing, waited_ns = seen["buffer_wait"]
    assert nothing == [NONE, NONE, 0]  # in vain, for data
    assert 1_000_000 <= waited_ns < LIMIT_S * 10**9
    assert seen["shard_free"] == [0, 2]
    assert seen["pool_destroy"] == [1]  # one was still taken
