# SPDX-License-Identifier: BSD-2-Clause
"""What doctor makes of machines that are not this one, from their files; and of looks that fail."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from diagnosed import diagnose
from livedma.doctor.bounded import look
from livedma.doctor.finding import Finding
from livedma.doctor.kernel import kernel, version
from livedma.doctor.limits import limits
from livedma.doctor.memory import huge
from livedma.doctor.processor import processor
from livedma.doctor.rdma_devices import rdma_devices
from livedma.memory.host import Files
from needs import needs

_HUGE = "sys/kernel/mm/hugepages/hugepages-2048kB"
_THP = "sys/kernel/mm/transparent_hugepage"
_CLOCK = "sys/devices/system/clocksource/clocksource0"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def by_name(found: object) -> dict[str, Finding]:
    assert isinstance(found, list)
    return {one.name: one for one in found}


@pytest.mark.parametrize(
    ("release", "state", "lacks"),
    [
        ("6.18.44-fc", "fine", ""),
        ("6.10.0", "fine", ""),
        ("6.9.12-generic", "costs", "packet ports"),
        ("6.1.0-40-amd64", "costs", "tcx"),
        ("5.10.0", "costs", "livedma guard"),
        ("4.19.0", "costs", "UDP GSO"),
        ("strange", "unknown", ""),
    ],
)
def test_versions(release: str, state: str, lacks: str) -> None:
    found = version(release)
    assert found.state == state and lacks in found.cost


def test_a_kernel_that_holds_things_back(tmp_path: Path) -> None:
    write(tmp_path, "proc/sys/net/core/bpf_jit_enable", "0")
    write(tmp_path, "proc/sys/kernel/unprivileged_bpf_disabled", "2")
    write(tmp_path, "proc/sys/kernel/io_uring_disabled", "2")
    write(tmp_path, "proc/sys/user/max_user_namespaces", "0")
    write(tmp_path, f"{_CLOCK}/current_clocksource", "hpet")
    write(tmp_path, f"{_CLOCK}/available_clocksource", "hpet tsc acpi_pm")
    found = by_name(kernel(Files(tmp_path)))
    assert found["bpf-jit"].state == "costs"
    assert found["bpf-jit"].fix.endswith("sysctl -w net.core.bpf_jit_enable=1")
    assert "/etc/sysctl.d/" in found["bpf-jit"].keep
    assert found["io-uring"].state == "costs" and found["io-uring"].fix == ""
    assert found["btf"].state == "costs"
    assert found["clock"].state == "costs" and "dmesg" in found["clock"].look
    assert found["user-ns"].facts["is_allowed"] is False


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    found = by_name(kernel(Files(tmp_path)))
    assert {found[name].state for name in ("bpf-jit", "bpf-users", "clock")} == {"unknown"}
    found = by_name(processor(Files(tmp_path)))
    assert found["steal"].state == "unknown"


def test_time_that_others_have(tmp_path: Path) -> None:
    write(tmp_path, "proc/stat", "cpu  500 0 100 300 0 0 0 100 0 0\ncpu0 1 2 3")
    steal = by_name(processor(Files(tmp_path)))["steal"]
    assert (steal.state, steal.facts) == ("costs", {"share": 0.1})


def test_a_cgroup_with_little_time(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a/small")
    write(tmp_path, "sys/fs/cgroup/a/cpu.max", "50000 100000")
    write(tmp_path, "sys/fs/cgroup/a/small/cpu.max", "max 100000")
    cpus = by_name(processor(Files(tmp_path)))["cpus"]
    assert (cpus.state, cpus.facts["quota"]) == ("costs", 0.5)


@pytest.mark.parametrize(
    ("reserved", "free", "transparent", "state", "says"),
    [
        ("0", "0", "always [madvise] never", "fine", "none are reserved"),
        ("8", "3", "always madvise [never]", "fine", "3 of 8 reserved"),
        ("0", "0", "always madvise [never]", "costs", "transparent ones are off"),
        ("8", "0", "always madvise [never]", "costs", "0 of 8 reserved"),
    ],
)
def test_huge_pages(
    tmp_path: Path, reserved: str, free: str, transparent: str, state: str, says: str
) -> None:
    write(tmp_path, f"{_HUGE}/nr_hugepages", reserved)
    write(tmp_path, f"{_HUGE}/free_hugepages", free)
    write(tmp_path, f"{_THP}/enabled", transparent)
    found = huge(Files(tmp_path))
    assert found.state == state and says in found.text
    assert found.fix.endswith(f"vm.nr_hugepages={int(reserved) + 512}") == (state == "costs")


def test_without_reserved_pages_transparent_ones_are_switched_on(tmp_path: Path) -> None:
    write(tmp_path, f"{_THP}/enabled", "always madvise [never]")
    found = huge(Files(tmp_path))
    assert found.state == "costs" and found.fix.startswith("echo madvise | ")


@pytest.mark.slow
@pytest.mark.alone
def test_huge_pages_that_are_really_there() -> None:
    needs(os.geteuid() == 0, "only root reserves huge pages")
    setting = Path("/proc/sys/vm/nr_hugepages")
    needs(setting.exists(), "this kernel has no huge pages")
    before = setting.read_text()
    missing = diagnose().one("huge-pages")["facts"]["reserved"]
    try:
        setting.write_text(str(int(before) + 2))
        needs(int(setting.read_text()) == int(before) + 2, "memory is in too small pieces")
        assert diagnose().one("huge-pages")["facts"]["reserved"] == missing + 2
    finally:
        setting.write_text(before)


def test_a_cgroup_with_little_memory(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 8000000 kB")
    write(tmp_path, "proc/self/cgroup", "0::/small")
    line = f"1 0 0:1 / {tmp_path}/sys/fs/cgroup rw - cgroup2 cgroup rw"
    write(tmp_path, "proc/self/mountinfo", line.replace(str(tmp_path), ""))
    group = "sys/fs/cgroup/small"
    write(tmp_path, "sys/fs/cgroup/cgroup.controllers", "memory")
    write(tmp_path, f"{group}/memory.max", str(200 << 20))
    write(tmp_path, f"{group}/memory.current", str(50 << 20))
    write(tmp_path, f"{group}/memory.stat", "inactive_file 0")
    found = by_name(limits(Files(tmp_path)))["memory"]
    assert found.state == "costs" and "memory.max" in found.text
    assert "2 connections" in found.cost
    assert found.fix.endswith("tee /sys/fs/cgroup/small/memory.max")


def _device(root: Path, name: str, kind: str, layer: str, gid: str = "", ndev: str = "") -> None:
    path = f"sys/class/infiniband/{name}"
    write(root, f"{path}/node_type", kind)
    write(root, f"{path}/ports/1/link_layer", layer)
    write(root, f"{path}/ports/1/gid_attrs/ndevs/0", ndev)
    write(root, f"{path}/ports/1/gid_attrs/types/0", "RoCE v2")
    write(root, f"{path}/ports/1/gids/0", gid)


def test_rdma_devices_of_the_kernel(tmp_path: Path) -> None:
    gid = "0000:0000:0000:0000:0000:ffff:0a00:0007"
    _device(tmp_path, "rxe0", "1: CA", "Ethernet", gid, "eth0")
    _device(tmp_path, "mlx5_0", "1: CA", "Ethernet", gid, "eth1")
    _device(tmp_path, "mlx5_1", "1: CA", "InfiniBand")
    _device(tmp_path, "iwp1", "4: RNIC", "Ethernet", gid, "eth2")
    found = {one.facts["device"]: one for one in rdma_devices(Files(tmp_path))}
    assert found["rxe0"].state == "costs"
    assert (found["rxe0"].fix, found["rxe0"].look) == ("", "rdma resource show")
    assert found["mlx5_0"].state == "costs" and "10.0.0.7" in found["mlx5_0"].cost
    assert found["mlx5_0"].facts["interfaces"] == ["eth1"]
    assert (found["mlx5_1"].state, found["iwp1"].state) == ("fine", "fine")


def test_a_look_that_takes_too_long_is_told() -> None:
    def wait() -> list[Finding]:
        time.sleep(60)
        return []

    (found,) = look("slow", wait, 0.05)
    assert (found.name, found.state) == ("slow", "unknown")
    assert "within 0.05 s" in found.text


def test_a_look_that_fails_does_not_hide_the_others() -> None:
    def fail() -> list[Finding]:
        raise RuntimeError("odd system")

    (found,) = look("odd", fail, 1.0)
    assert found.state == "unknown" and "odd system" in found.text
