# SPDX-License-Identifier: BSD-2-Clause
"""Attaching, being detached by others, attaching again, and leaving nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from talk import Talk, call, header, read

from bpf_links import links_of
from livedma.lab.hosts import Host, connect, two_hosts
from livedma.monitor import Monitor, MonitorError
from livedma.wire.encode import ethernet
from traffic import packet_socket
from xdp import attached_tcx

pytestmark = pytest.mark.slow


@pytest.fixture
def hosts(bpf: None) -> Iterator[tuple[Host, Host]]:
    with two_hosts() as pair:
        yield pair


def monitor_of(host: Host, **options: bool) -> Monitor:
    with host.inside():
        return Monitor([host.iface], connections=2, sessions=2, **options)


class Sending(Talk):
    """Frames go out of a host, and pass a monitor at one of the ends."""

    host: Host

    def show(self, packet: bytes) -> None:
        with packet_socket(self.host, bypass_qdisc=False) as sock:
            sock.send(ethernet(packet))


def calls_seen(monitor: Monitor, host: Host, first: int) -> int:
    """How many of the two calls that the host sends are seen."""
    talk = Sending(monitor, comm_ids=(first, first), server_qpn=first, client_qpn=first)
    talk.host = host
    talk.connect()
    for xid in range(2):
        talk.call(header(xid) + call(xid, read()))
    return sum(one.in_flight for one in monitor.snapshot().connections)


@pytest.mark.parametrize("without_links", [False, True])
def test_it_sees_what_comes_and_what_goes(hosts: tuple[Host, Host], without_links: bool) -> None:
    near = hosts[0]
    for host in hosts:
        # Filters, other than links, are found in the namespace only.
        with near.inside(), monitor_of(near, without_links=without_links) as monitor:
            assert monitor.is_attached
            assert monitor.mode == ("clsact" if without_links else "tcx")
            assert calls_seen(monitor, host, 1) == 2
    assert attached_tcx(near) == 0
    shown = near.run("tc", "qdisc", "show", "dev", "eth0", capture_output=True).stdout
    assert "clsact" not in shown


def test_several_interfaces(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    other = Host(near.name, "eth1", "", "")
    connect(other, Host(far.name, "eth1", "", ""))
    with near.inside():
        monitor = Monitor(["eth0", other.ifindex], connections=2, sessions=2)
    with monitor:
        assert attached_tcx(near) == attached_tcx(other) == 2
        assert calls_seen(monitor, far, 1) == 2
    assert attached_tcx(near) == attached_tcx(other) == 0


def test_detached_by_somebody_else(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    before = links_of()
    with monitor_of(near) as monitor:
        assert calls_seen(monitor, far, 1) == 2
        ours = links_of() - before
        assert ours
        subprocess.run(["bpftool", "link", "detach", "id", str(min(ours))], check=True)
        assert not monitor.is_attached
        with near.inside():
            monitor.attach()
        assert monitor.is_attached
        assert attached_tcx(near) == 2
        assert calls_seen(monitor, far, 2) == 4  # what it knew before it still knows


def test_an_interface_that_goes_and_comes_back(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    with monitor_of(near) as monitor:
        near.remove_link()
        assert not monitor.is_attached
        with near.inside(), pytest.raises(MonitorError, match="there is no interface eth0"):
            monitor.attach()
        assert not monitor.is_attached
        connect(near, far)
        with near.inside():
            monitor.attach()
        assert monitor.is_attached
        assert calls_seen(monitor, far, 1) == 2


_KILLED = """
import sys, time
from livedma.monitor import Monitor
monitor = Monitor(["eth0"])
print("attached", flush=True)
time.sleep(60)
"""


def test_a_process_that_is_killed_leaves_nothing_behind(hosts: tuple[Host, Host]) -> None:
    near, _ = hosts
    argv = near.command(sys.executable, "-c", _KILLED)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "attached\n"
        assert attached_tcx(near) == 2
        process.send_signal(signal.SIGKILL)
    assert attached_tcx(near) == 0


def test_errors_say_what_to_do(bpf: None) -> None:
    with pytest.raises(MonitorError, match="there is no interface nowhere0: 'ip link' lists"):
        Monitor(["nowhere0"])
    with pytest.raises(MonitorError, match="cannot be attached"):
        Monitor([999_999])


def test_without_the_privilege(bpf: None) -> None:
    program = (
        "import os; from livedma.monitor import Monitor; os.setgid(65534); os.setuid(65534)\n"
        "try: Monitor(['lo'])\nexcept Exception as error: print(error)"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(
        argv, check=True, stdout=subprocess.PIPE, text=True, cwd="/", env={**os.environ}
    )
    assert done.stdout == (
        "monitoring needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON): run it with sudo\n"
    )


def test_a_closed_monitor(bpf: None) -> None:
    monitor = Monitor([])
    assert not monitor.is_attached
    monitor.close()
    monitor.close()
    with pytest.raises(ValueError, match="closed"):
        monitor.snapshot()
