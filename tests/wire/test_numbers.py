# SPDX-License-Identifier: BSD-2-Clause
"""The headers of native/wire, for C and BPF, have the same numbers of protocols as Python."""

from __future__ import annotations

import re

import pytest
from docs.graphs import ROOT

from livedma.nfs import numbers
from livedma.rpc.message import Flavor
from livedma.wire import cm, rpc, rpcrdma

WIRE = ROOT / "native" / "wire"
#: Enumerators that are such numbers, wherever they stand, and macros.
_ELSEWHERE = re.compile(
    r"\b(?:RPC|NFS|AUTH|CM|RPCRDMA)_?(?:CALL|REPLY|VERSION|NONE|SYS|REQ|REP|MSG|NOMSG|DONE|PROGRAM)"
    r"\b\s*(?:=\s*)?(?:0x)?\d"
)


def found(header: str, prefix: str) -> dict[str, int]:
    pairs = re.findall(rf"\b{prefix}(\w+) = (\w+)", (WIRE / header).read_text())
    return {name: int(number, 0) for name, number in pairs}


def test_nfs() -> None:
    c = found("nfs.h", "LDMA_NFS_")
    assert c.pop("PROGRAM") == numbers.PROGRAM
    assert (c.pop("VERSION"), c.pop("COMPOUND")) == (numbers.VERSION, 1)
    assert len(c) > 35
    python = {
        **{f"OP_{one.name}": one for one in numbers.Op},
        **{f"ATTR_{one.name}": one for one in numbers.Attribute},
        **{one.name: one for one in (*numbers.Status, *numbers.Stable)},
    }
    assert c == {name: int(python[name]) for name in c}


def test_rpc() -> None:
    c = found("rpc.h", "LDMA_RPC_")
    assert c == {
        "CALL": rpc.CALL,
        "REPLY": rpc.REPLY,
        "VERSION": rpc.VERSION,
        "NULL": 0,
        "AUTH_NONE": Flavor.AUTH_NONE,
        "AUTH_SYS": Flavor.AUTH_SYS,
        "AUTH_MOST": rpc.AUTH_MOST,
        "MACHINE_MOST": rpc.MACHINE_MOST,
        "GIDS_MOST": rpc.GIDS_MOST,
    }
    assert {one.name: one for one in Flavor} == {rpc.FLAVORS[one]: one for one in Flavor}


def test_rpc_over_rdma() -> None:
    c = found("rpc.h", "LDMA_RPCRDMA_")
    assert c.pop("VERSION") == rpcrdma.VERSION
    procs = {name.removeprefix("RDMA_"): i for i, name in enumerate(rpcrdma.PROCS)}
    assert c == {**procs, **{name: number for number, name in rpcrdma.ERRORS.items()}}


def test_communication_management() -> None:
    c = found("cm.h", "LDMA_CM_")
    assert c.pop("CLASS") == cm.CM_CLASS
    assert len(c) > 6
    assert c == {name: number for number, name in cm.ATTRIBUTES.items() if name in c}


@pytest.mark.parametrize("folder", ["native", "bpf"])
def test_they_stand_nowhere_else(folder: str) -> None:
    assert not [
        f"{path.relative_to(ROOT)}: {line}"
        for path in sorted((ROOT / folder).rglob("*.[ch]"))
        if path.parent != WIRE
        for line in path.read_text().splitlines()
        if _ELSEWHERE.search(line)
    ]
