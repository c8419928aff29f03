# SPDX-License-Identifier: BSD-2-Clause
"""Which interfaces a watch chooses, and which RDMA NICs it names as hidden from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from livedma.errors import LivedmaError
from livedma.lab.hosts import two_hosts
from livedma.ui.watch.interfaces import chosen, offloading
from livedma.ui.watch.wire import WireSource


def device(sys: Path, name: str, *interfaces: str) -> None:
    ports = sys / "infiniband" / name / "ports" / "1" / "gid_attrs" / "ndevs"
    ports.mkdir(parents=True)
    for index, interface in enumerate(interfaces):
        (ports / str(index)).write_text(f"{interface}\n")
    (ports / "99").mkdir()  # cannot be read, as entries that are not in use


def test_nics_that_do_roce_in_hardware_are_named(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", "eth0", "eth0")
    device(tmp_path, "mlx5_1", "eth1")
    device(tmp_path, "rxe0", "eth0")  # software: its packets pass
    assert offloading(["eth0", "lo"], tmp_path) == [("mlx5_0", "eth0")]
    assert offloading(["lo"], tmp_path) == []


@pytest.mark.apart
@pytest.mark.slow
def test_those_that_are_up_and_have_an_address(bpf: None, tmp_path: Path) -> None:
    (tmp_path / "net" / "over" / "lower_eth0").mkdir(parents=True)  # as the kernel says it
    with two_hosts() as (near, _), near.inside():
        assert near.iface in chosen()
        near.run("ip", "link", "add", "over", "type", "bridge")
        near.run("ip", "address", "add", "10.99.0.1/24", "dev", "over")
        assert "over" not in chosen()  # it is down
        near.run("ip", "link", "set", "over", "up")
        assert {"over", near.iface} <= set(chosen())
        assert "over" not in chosen(tmp_path)  # its packets pass the one below, too
        for name in ("over", near.iface, "lo"):
            near.run("ip", "link", "set", name, "down")
        with pytest.raises(LivedmaError, match="no interface is up and has an address"):
            WireSource().attach()


def test_a_source_that_is_not_attached_has_nothing_to_tell() -> None:
    source = WireSource(["lo"])
    assert not source.is_attached
    with pytest.raises(ValueError, match="not attached"):
        source.snapshot()
    source.close()
