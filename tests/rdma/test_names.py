# SPDX-License-Identifier: BSD-2-Clause
"""Names of queue pairs and completions: those of the device, and strings."""

from __future__ import annotations

from enum import StrEnum

import pytest

from livedma._native import rdma as native
from livedma.rdma import (
    Completed,
    CompletionStatus,
    Operation,
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
    ],
)
def test_all_names_of_the_device_are_there(names: type[StrEnum], known: object) -> None:
    assert [*names] == [*known]  # type: ignore[call-overload]
    assert all(one.name == one.value for one in names)


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


@pytest.mark.parametrize("operation", ["FLY", None, 3])
def test_what_is_no_operation_is_an_error(operation: object) -> None:
    with pytest.raises((KeyError, TypeError)):
        native.WorkRequest(1, operation)  # type: ignore[arg-type]
