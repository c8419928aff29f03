# SPDX-License-Identifier: BSD-2-Clause
"""No text makes a parser fail, and whatever it says, numbers stay numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import OLD, TWO_NODES, machine, process

from livedma.memory.host import Files, advise, look
from livedma.memory.host.buddy import together, zones
from livedma.memory.host.cgroup import mounts, place_of
from livedma.memory.host.process import command_line, limits, status
from livedma.memory.host.text import chosen, number, pairs, pressure
from livedma.privilege import maps_all_users

#: what such files are made of, in any order, and anything else
PIECES = st.sampled_from(
    [
        "Node",
        "0",
        "Normal",
        "VmPin:",
        "kB",
        "max",
        "unlimited",
        "-1",
        "999999999999999999999999",
        "\u0663",
        "\xb2",
        "[x]",
        "some",
        "bytes",
        "avg10=1.00",
        "0::/",
        "memory",
        ":",
        "/",
        "..",
        "-",
        "cgroup2",
        "CapEff:",
        "ffffffffffffffffffff",
        "Uid:",
        "\\040",
        "\\777",
        "\x00",
        "\n",
        " ",
        "\t",
        ", zone",
        "Max locked memory",
    ]
)
TEXTS = st.one_of(st.text(), st.lists(PIECES).map("".join), st.lists(PIECES).map(" ".join))
RECORDED = {**OLD, **TWO_NODES, **process(7, locked_kb=9, cgroup="0::/system.slice/db.service")}


@given(TEXTS)
def test_each_parser(text: str) -> None:
    for zone in [*zones(text), together(zones(text))]:
        for order in range(12):
            assert 0 <= zone.unusable_index(order) <= 1
            index = zone.fragmentation_index(order)
            assert index is None or index <= 1
    assert all(value >= 0 for value in pairs(text).values())
    assert command_line(text).isprintable()
    for parse in (place_of, mounts, status, limits, maps_all_users, chosen, number, pressure):
        parse(text)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return machine(tmp_path_factory.mktemp("copy"), RECORDED)


@given(st.dictionaries(st.sampled_from(sorted(RECORDED)), TEXTS, max_size=5))
def test_a_machine_with_any_files(copy: Files, files: dict[str, str]) -> None:
    for name, text in files.items():
        (copy.root / name).write_bytes(text.encode(errors="surrogatepass"))
    advise(look(copy, page_size=4096))
    machine(copy.root, {name: RECORDED[name] for name in files})
