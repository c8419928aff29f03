# SPDX-License-Identifier: BSD-2-Clause
"""Defines the names that devices, memory and queue pairs take and that completions have.

Each member is its string: `"SEND" == Operation.SEND`, and either may be given for the other.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "Access",
    "Completed",
    "CompletionStatus",
    "MemoryMode",
    "Operation",
    "PortKind",
    "QueuePairState",
    "QueuePairType",
]


class PortKind(StrEnum):
    """Names how a device's packets come in. AUTO is PACKET where that is possible, else UDP."""

    AUTO = "auto"
    UDP = "udp"
    PACKET = "packet"


class Access(StrEnum):
    """Names what a region or a window lets peers do (ibv_access_flags)."""

    LOCAL_WRITE = "local_write"
    REMOTE_WRITE = "remote_write"
    REMOTE_READ = "remote_read"
    REMOTE_ATOMIC = "remote_atomic"
    REMOTE_INVALIDATE = "remote_invalidate"


class MemoryMode(StrEnum):
    """Names how a region's memory is held: in its place, or mapped when the device needs it."""

    PINNED = "pinned"
    ON_DEMAND = "on demand"


class QueuePairType(StrEnum):
    """Names the type of a queue pair (ib_qp_type)."""

    GSI = "GSI"
    RC = "RC"
    UC = "UC"
    UD = "UD"


class QueuePairState(StrEnum):
    """Names the state of a queue pair (ibv_qp_state)."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    SQD = "SQD"
    SQE = "SQE"
    ERR = "ERR"


class Operation(StrEnum):
    """Names what a send request does (ibv_wr_opcode)."""

    WRITE = "WRITE"
    WRITE_WITH_IMM = "WRITE_WITH_IMM"
    SEND = "SEND"
    SEND_WITH_IMM = "SEND_WITH_IMM"
    READ = "READ"
    COMPARE_SWAP = "COMPARE_SWAP"
    FETCH_ADD = "FETCH_ADD"
    SEND_WITH_INV = "SEND_WITH_INV"


class Completed(StrEnum):
    """Names the operation that completed (ibv_wc_opcode)."""

    SEND = "SEND"
    WRITE = "WRITE"
    READ = "READ"
    COMPARE_SWAP = "COMPARE_SWAP"
    FETCH_ADD = "FETCH_ADD"
    RECV = "RECV"
    RECV_WRITE_WITH_IMM = "RECV_WRITE_WITH_IMM"


class CompletionStatus(StrEnum):
    """Names the outcome of a request (ibv_wc_status)."""

    SUCCESS = "SUCCESS"
    LOC_LEN_ERR = "LOC_LEN_ERR"
    LOC_QP_OP_ERR = "LOC_QP_OP_ERR"
    LOC_PROT_ERR = "LOC_PROT_ERR"
    WR_FLUSH_ERR = "WR_FLUSH_ERR"
    BAD_RESP_ERR = "BAD_RESP_ERR"
    LOC_ACCESS_ERR = "LOC_ACCESS_ERR"
    REM_INV_REQ_ERR = "REM_INV_REQ_ERR"
    REM_ACCESS_ERR = "REM_ACCESS_ERR"
    REM_OP_ERR = "REM_OP_ERR"
    RETRY_EXC_ERR = "RETRY_EXC_ERR"
    RNR_RETRY_EXC_ERR = "RNR_RETRY_EXC_ERR"
