# SPDX-License-Identifier: BSD-2-Clause
"""What limits the kernel's NFS server, from snapshots in which one thing has run out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from livedma.control.diagnose.nfsd import KernelDiagnosis, KernelLimit, diagnose_kernel
from livedma.monitor.snapshot import Connection, Host, InsideKernel, KernelHost, Snapshot, Times

MS = 1_000_000


def times(count: int, each_ms: float) -> Times:
    each = round(each_ms * MS)
    return Times(count, count * each, each, each, each)


#: 100 calls in a second, of 10 ms: 4 in storage, 1 of waiting for a thread; 2 of 8 threads work.
KERNEL = InsideKernel(
    executing=2,
    serving_ns=900 * MS,
    thread_waits=times(100, 1),
    storage=times(100, 4),
    fetches=Times(),
    send_waits=Times(),
    last_credits=0,
    contexts_made=0,
    receives_failed=0,
)
HOST = KernelHost(threads=8, serving=2.0, cpus=4, cpus_busy=0.4, cpus_used=0.5, cpu_waiting=0.1)
CONNECTION = Connection(
    number=3,
    server="10.0.0.1",
    server_qpn=17,
    client="10.0.0.2",
    client_qpn=0,
    sessions=1,
    operations=100,
    read_bytes=0,
    written_bytes=409600,
    latency=times(100, 10),
    in_flight=2,
    credits_asked=128,
    credits_granted=64,
    rnr_naks=0,
    naks=0,
    retransmissions=0,
    unanswered=0,
    kernel=KERNEL,
)


def diagnosed(
    kernel: InsideKernel = KERNEL, host: KernelHost = HOST, connection: Connection = CONNECTION
) -> tuple[KernelDiagnosis, ...]:
    return diagnose_kernel(
        Snapshot(
            at_s=1.0,
            wall_s=1.0,
            interval_s=1.0,
            source="nfsd",
            connections=(replace(connection, kernel=kernel),),
            sessions=(),
            host=Host(None, None, None, kernel=host),
        )
    )


FEW_THREADS = replace(KERNEL, thread_waits=times(100, 6))
ALL_BUSY = replace(HOST, serving=7.5)
FULL = replace(HOST, cpus_busy=0.97)
SLOW = replace(KERNEL, storage=times(100, 8), serving_ns=900 * MS)


@pytest.mark.parametrize(
    ("kernel", "host", "limit"),
    [
        (KERNEL, HOST, KernelLimit.NOTHING),
        (KERNEL, FULL, KernelLimit.CPU),
        (SLOW, FULL, KernelLimit.STORAGE),
        (SLOW, replace(FULL, cpu_waiting=1.0), KernelLimit.CPU),
        (SLOW, HOST, KernelLimit.STORAGE),
        (FEW_THREADS, ALL_BUSY, KernelLimit.THREADS),
        (FEW_THREADS, HOST, KernelLimit.NOTHING),
        (replace(SLOW, thread_waits=times(100, 6)), ALL_BUSY, KernelLimit.THREADS),
        (replace(SLOW, last_credits=20), HOST, KernelLimit.CREDITS),
        (replace(KERNEL, last_credits=5), HOST, KernelLimit.NOTHING),
        (replace(KERNEL, send_waits=times(20, 20)), HOST, KernelLimit.SEND_QUEUE),
    ],
)
def test_what_has_run_out_is_named(
    kernel: InsideKernel, host: KernelHost, limit: KernelLimit
) -> None:
    (found,) = diagnosed(kernel, host)
    assert (found.connection, found.limit) == (3, limit)
    assert found.sentence and found.evidence["calls"] == 100


def test_credits_that_nobody_asks_for_are_no_limit() -> None:
    short = replace(KERNEL, last_credits=50)
    assert diagnosed(short)[0].limit is KernelLimit.CREDITS
    content = replace(CONNECTION, credits_asked=64)
    assert diagnosed(short, connection=content)[0].limit is KernelLimit.NOTHING
    over_tcp = replace(CONNECTION, transport="tcp")
    assert diagnosed(short, connection=over_tcp)[0].limit is KernelLimit.NOTHING


def test_few_calls_say_nothing() -> None:
    assert diagnosed(connection=replace(CONNECTION, operations=7)) == ()
