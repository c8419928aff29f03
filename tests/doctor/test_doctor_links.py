# SPDX-License-Identifier: BSD-2-Clause
"""What doctor says of interfaces, and that its commands mend them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from diagnosed import diagnose, shell
from livedma.lab.hosts import Host, two_hosts
from needs import needs
from xdp import TinyTc, TinyXdp

pytestmark = [pytest.mark.slow, pytest.mark.apart]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts(mtu=1500) as both:
        yield both


def test_a_small_mtu_costs_until_it_is_raised(hosts: tuple[Host, Host]) -> None:
    host, _ = hosts
    finding = diagnose(*host.command()).one("mtu", interface=host.iface)
    assert (finding["state"], finding["facts"]["path_mtu"]) == ("costs", 1024)
    shell(finding["fix"], host)
    finding = diagnose(*host.command()).one("mtu", interface=host.iface)
    assert (finding["state"], finding["facts"]["path_mtu"]) == ("fine", 4096)


def test_one_interface_or_address_alone(hosts: tuple[Host, Host]) -> None:
    host, _ = hosts
    found = diagnose(*host.command(), arguments=(host.iface,))
    assert {one["facts"]["interface"] for one in found.all("address")} == {host.iface}
    assert len(found.all("offloads")) == 1
    found = diagnose(*host.command(), arguments=(host.ipv6,))
    assert found.said["addresses"] == [host.ipv6]


def test_gro_that_is_off(hosts: tuple[Host, Host]) -> None:
    host, _ = hosts
    shell(
        "ip tuntap add dev tap7 mode tap; ip address add 10.81.0.1/24 dev tap7; "
        "ip link set dev tap7 up; ethtool -K tap7 gro off",
        host,
    )
    finding = diagnose(*host.command()).one("offloads", interface="tap7")
    assert finding["state"] == "costs" and "GRO is off" in finding["text"]
    shell(finding["fix"], host)
    assert diagnose(*host.command()).one("offloads", interface="tap7")["facts"]["can_gro"] is True


@pytest.mark.parametrize("what", ["tx-udp-segmentation", "tx"])
def test_segmentation_that_is_off(hosts: tuple[Host, Host], what: str) -> None:
    """Checksums, too: the kernel leaves segmentation off without them."""
    host, _ = hosts
    shell(f"ethtool -K {host.iface} {what} off", host)
    finding = diagnose(*host.command()).one("offloads", interface=host.iface)
    assert finding["state"] == "costs" and "tx-udp-segmentation is off" in finding["text"]
    shell(finding["fix"], host)
    assert diagnose(*host.command()).one("offloads", interface=host.iface)["state"] == "fine"


@pytest.mark.parametrize("link", [False, True])
def test_xdp_of_others_costs_both_ends_of_a_veth(
    bpf: None, hosts: tuple[Host, Host], link: bool
) -> None:
    here, there = hosts
    assert diagnose(*here.command()).one("offloads", interface=here.iface)["state"] == "fine"
    with TinyXdp(there, name="strange", link=link):
        cut = diagnose(*here.command()).one("offloads", interface=here.iface)
        assert cut["state"] == "costs" and "at its other end" in cut["text"]
        assert (cut["fix"], cut["look"]) == ("", "ip -d link show dev PEER")
        cause = diagnose(*there.command()).one("programs", interface=there.iface)
        assert cause["state"] == "costs" and "native XDP" in cause["text"]
        assert cause["facts"]["program"] == "strange" and cause["facts"]["id"] > 0
        assert "a fifth of the bandwidth" in cause["cost"]
        assert (cause["fix"], "prog show id" in cause["look"]) == ("", True)
        shell(cause["facts"]["remove"], there)
        assert diagnose(*here.command()).one("offloads", interface=here.iface)["state"] == "fine"
        assert diagnose(*there.command()).one("programs", interface=there.iface)["state"] == "fine"


@pytest.mark.parametrize("how", ["tcx", "clsact"])
@pytest.mark.parametrize("egress", [False, True])
def test_tc_programs_of_others(bpf: None, hosts: tuple[Host, Host], how: str, egress: bool) -> None:
    host, _ = hosts
    with TinyTc(host, name="strange", how=how, egress=egress):
        finding = diagnose(*host.command()).one("programs", interface=host.iface)
        way = "egress" if egress else "ingress"
        assert finding["state"] == "costs"
        assert finding["facts"]["hook"] == f"{'tcx' if how == 'tcx' else 'tc'} {way}"
        assert finding["facts"]["program"] == "strange" and finding["facts"]["id"] > 0
        # Whose it is has to be found out first: no command to copy takes it away.
        assert finding["fix"] == ""
        shell(finding["look"], host)
        shell(finding["facts"]["remove"], host)
        assert diagnose(*host.command()).one("programs", interface=host.iface)["state"] == "fine"
