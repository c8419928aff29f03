# SPDX-License-Identifier: BSD-2-Clause
"""Defines the names that queue pairs take and completions have, as enumerations.

Each member is its string: `"SEND" == Operation.SEND`, and either may be given for the other.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Completed", "CompletionStatus", "Operation", "QueuePairState", "QueuePairType"]


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
