"""livedma doctor, as a process: what it finds is what is there, and its commands do fix it."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from livedma.lab.hosts import Host, two_hosts
from livedma.lab.xdp import TinyXdp
from needs import needs

POINTS = (
    "port",
    "sharing",
    "segmentation",
    "socket-buffers",
    "pinned-memory",
    "on-demand",
    "bpf",
    "processor",
)
WANTED_BYTES = 8 << 20


def doctor(*before: str) -> tuple[int, dict[str, list[dict[str, Any]]], bool]:
    """Exit status, findings by name, and whether it says that a device can run."""
    done = subprocess.run(
        [*before, "livedma", "doctor", "--json"], capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    by_name: dict[str, list[dict[str, Any]]] = {}
    for finding in found["findings"]:
        by_name.setdefault(finding["name"], []).append(finding)
    return done.returncode, by_name, found["can_run"]


def at(host: Host, address: str) -> dict[str, Any]:
    _, found, _ = doctor(*host.command())
    (one,) = (f for f in found["address"] if f["facts"]["address"] == address)
    return one


def test_every_point_has_a_line() -> None:
    _, found, _ = doctor()
    assert set(POINTS) | {"kernel-rdma", "sharing", "address"} <= set(found)
    text = subprocess.run(["livedma", "doctor"], capture_output=True, text=True).stdout
    lines = text.splitlines()
    for name in POINTS:
        assert any(line.split()[:2] in (["fine", name], ["costs", name]) for line in lines)
    (loopback,) = (f for f in found["address"] if f["facts"]["address"] == "127.0.0.1")
    assert loopback["facts"]["path_mtu"] == 4096
    assert {f["facts"]["kind"] for f in found["port"]} <= {"packet", "udp"}


def test_whatever_costs_says_what() -> None:
    _, found, _ = doctor()
    for findings in found.values():
        for finding in findings:
            assert finding["state"] in ("fine", "costs", "stops")
            assert bool(finding["cost"]) == (finding["state"] == "costs")


def test_sharing_depends_on_privilege() -> None:
    needs(os.geteuid() == 0, "what root may do is to be shown")
    _, found, _ = doctor()
    assert [f["state"] for f in found["sharing"]] == ["fine"]
    _, found, can_run = doctor("setpriv", "--bounding-set=-bpf,-sys_admin,-net_admin")
    assert can_run
    assert [f["state"] for f in found["sharing"]] == ["costs"]


def test_help_has_an_example() -> None:
    said = subprocess.run(["livedma", "doctor", "--help"], capture_output=True, text=True)
    assert "livedma doctor --json" in said.stdout


@pytest.fixture
def host() -> Any:
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts(mtu=1500) as (one, _):
        yield one


@pytest.mark.slow
def test_a_small_mtu_costs_until_it_is_raised(host: Host) -> None:
    finding = at(host, host.ipv4)
    assert finding["state"] == "costs"
    assert finding["facts"]["path_mtu"] == 1024
    subprocess.run(host.command(*shlex.split(finding["fix"].removeprefix("sudo "))), check=True)
    finding = at(host, host.ipv4)
    assert (finding["state"], finding["facts"]["path_mtu"]) == ("fine", 4096)


@pytest.mark.slow
@pytest.mark.parametrize("version", [4, 6])
def test_who_has_the_port_is_named(host: Host, version: int) -> None:
    address = host.ipv4 if version == 4 else host.ipv6
    family = "AF_INET" if version == 4 else "AF_INET6"
    program = (
        "import socket, sys\n"
        f"s = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n"
        f"s.bind(({address!r}, 4791))\n"
        "print('bound', flush=True)\n"
        "sys.stdin.read()\n"
    )
    argv = host.command("python3", "-c", program)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "bound\n"
        finding = at(host, address)
        other.terminate()
    assert finding["state"] == "costs"
    assert finding["facts"]["is_free"] is False
    assert finding["facts"]["owner_pid"] == other.pid
    assert f"(process {other.pid})" in finding["text"]
    assert finding["fix"] == f"kill {other.pid}"
    assert at(host, address)["facts"]["is_free"] is True


@pytest.mark.slow
def test_without_a_free_address_no_device_can_run(host: Host) -> None:
    with host.inside():
        takers = [
            socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6)
        ]
    takers[1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    for taker in takers:
        with taker:
            taker.bind(("", 4791))
            status, _, can_run = doctor(*host.command())
            # the other family's addresses are still free
            assert (status, can_run) == (0, True)
    with host.inside():
        both = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    with both:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        both.bind(("", 4791))
        assert doctor(*host.command())[0::2] == (1, False)


@pytest.mark.slow
def test_without_an_address_no_device_can_run() -> None:
    needs(os.geteuid() == 0, "namespaces need root")
    status, found, can_run = doctor("unshare", "--net")
    assert (status, can_run) == (1, False)
    assert [finding["state"] for finding in found["address"]] == ["stops"]


@pytest.mark.slow
def test_xdp_on_a_veth_costs_both_ends(bpf: None) -> None:
    with two_hosts() as (one, other):
        assert [f["state"] for f in doctor(*one.command())[1]["veth"]] == ["fine"]
        with TinyXdp(other):
            (here,) = doctor(*one.command())[1]["veth"]
            (there,) = doctor(*other.command())[1]["veth"]
            assert here["state"] == "costs" and "at its other end" in here["text"]
            assert there["state"] == "costs" and "native XDP program" in there["text"]
            subprocess.run(
                other.command(*shlex.split(there["fix"].removeprefix("sudo "))), check=True
            )
            assert [f["state"] for f in doctor(*one.command())[1]["veth"]] == ["fine"]


@pytest.mark.slow
def test_without_privilege_the_limits_count() -> None:
    needs(os.geteuid() == 0, "privileges can only be dropped by who has them")
    unable = ",".join(
        f"-{name}" for name in ("net_admin", "net_raw", "ipc_lock", "bpf", "sys_admin")
    )
    status, found, can_run = doctor("setpriv", "--bounding-set", unable)
    assert (status, can_run) == (0, True)
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text())
    (buffers,) = found["socket-buffers"]
    assert buffers["facts"]["given_bytes"] == min(allowed, WANTED_BYTES)
    assert buffers["state"] == ("fine" if allowed >= WANTED_BYTES else "costs")
    (bpf,) = found["bpf"]
    assert bpf["state"] == "costs" and "livedma capture" in bpf["cost"]
    (pinned,) = found["pinned-memory"]
    assert pinned["facts"]["has_cap_ipc_lock"] is False
    assert (pinned["state"] == "fine") == (pinned["facts"]["limit_bytes"] is None)
    assert [f["state"] for f in found["on-demand"]] == ["fine"]
    (port,) = (f for f in found["port"] if "127.0.0.1" in f["facts"]["addresses"])
    assert (port["state"], port["facts"]["kind"]) == ("costs", "udp")
    assert "CAP_NET_RAW" in port["cost"] and port["fix"].startswith("sudo ")
    (sharing,) = found["sharing"]
    assert sharing["state"] == "costs" and "CAP_BPF" in sharing["cost"]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "says"), [(0, "cannot pin 4 KiB"), (65536, "64 KiB in all")])
def test_a_limit_on_pinned_memory_is_told(limit: int, says: str) -> None:
    needs(os.geteuid() == 0, "privileges can only be dropped by who has them")
    (pinned,) = doctor("prlimit", f"--memlock={limit}", "setpriv", "--bounding-set", "-ipc_lock")[
        1
    ]["pinned-memory"]
    assert says in pinned["text"]
    assert pinned["state"] == "costs"
    assert "--memlock=" in pinned["fix"]
