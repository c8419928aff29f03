# SPDX-License-Identifier: BSD-2-Clause
"""Numbers of NFS that C and BPF know are those of Python."""

from __future__ import annotations

import re
from pathlib import Path

from livedma.wire.nfs_numbers import Op, Status
from livedma.wire.rpc import NFS

HEADER = Path(__file__).parents[2] / "native" / "wire" / "nfs.h"


def test_c_knows_the_same_numbers() -> None:
    found = dict(re.findall(r"LDMA_NFS_(\w+) = (\d+)", HEADER.read_text()))
    assert int(found.pop("PROGRAM")) == NFS
    assert (found.pop("VERSION"), found.pop("COMPOUND")) == ("4", "1")
    assert len(found) > 20
    for name, number in found.items():
        known = Op[name.removeprefix("OP_")] if name.startswith("OP_") else Status[name]
        assert known == int(number), name
