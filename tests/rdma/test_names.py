# SPDX-License-Identifier: BSD-2-Clause
"""Names of queue pairs and completions: those of the device, and strings."""

from __future__ import annotations

from enum import StrEnum

import pytest

from livedma._native import rdma as native
from livedma._native.port import KINDS
from livedma.rdma import (
    Access,
    Completed,
    CompletionStatus,
    Device,
    MemoryMode,
    Operation,
    PortKind,
    QueuePairState,
    QueuePairType,
)


@pytest.mark.parametrize(
    ("names", "known"),
    [
        (QueuePairType, native.TYPES),
        (QueuePairState, native.STATES),
        (Operation, native.OPERATIONS),
        (Completed, native.COMPLETED.values()),
        (CompletionStatus, native.STATUSES.values()),
        (PortKind, KINDS),
    ],
)
def test_all_names_of_the_device_are_there(names: type[StrEnum], known: object) -> None:
    assert [*names] == [*known]  # type: ignore[call-overload]
    assert all(one.name == one.value.upper() for one in names)


def test_either_may_be_given_and_compared() -> None:
    engine = native.Engine()
    queue = native.CompletionQueue(16)
    qp = engine.create_qp(QueuePairType.RC, queue, queue)
    assert qp.state == QueuePairState.RESET
    for state in (QueuePairState.INIT, "RTR", QueuePairState.RTS):
        qp.modify(state)
    memory = engine.register(bytearray(64), ("local_write",))
    piece = (memory.key, memory.va, memory.length)
    for operation in (Operation.SEND, "SEND"):
        qp.post_send(1, operation, [piece])
    qp.post_sends([native.WorkRequest(2, Operation.WRITE, [piece])])
    qp.modify(QueuePairState.ERR)
    assert {one.status for one in queue.poll()} == {CompletionStatus.WR_FLUSH_ERR}


def test_a_device_and_its_memory_take_either() -> None:
    for kind in ("udp", PortKind.UDP):
        with Device("127.0.0.1", port=kind) as device, device.protection_domain() as pd:
            assert device.port_kind is PortKind.UDP
            for access in ([*Access], [one.value for one in Access]):
                pd.register(bytearray(4096), *access).close()
            for mode in (MemoryMode.PINNED, "pinned"):
                pd.register(bytearray(4096), mode=mode).close()
            for mode in ("paged", "PINNED"):
                with pytest.raises(ValueError, match="pinned, on demand"):
                    pd.register(bytearray(4096), mode=mode)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="auto, udp, packet"):
        Device("127.0.0.1", port="pigeon")


@pytest.mark.parametrize("operation", ["FLY", None, 3])
def test_what_is_no_operation_is_an_error(operation: object) -> None:
    with pytest.raises((KeyError, TypeError)):
        native.WorkRequest(1, operation)  # type: ignore[arg-type]
