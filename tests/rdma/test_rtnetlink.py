# SPDX-License-Identifier: BSD-2-Clause
"""Interfaces and addresses by our own reading of netlink, beside that of a library for it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator

import pytest
from pyroute2 import IPRoute

from livedma.lab.hosts import Host, two_hosts
from livedma.rdma import rtnetlink
from livedma.rdma.interface import Interface, addresses, interface_of
from needs import needs


@pytest.fixture
def host() -> Iterator[Host]:
    """With many addresses, so that an answer has several parts."""
    needs(os.geteuid() == 0, "namespaces need root")
    with two_hosts(mtu=1777) as (host, _):
        with host.netlink() as ip:
            for number in range(1000):
                given = f"10.200.{number // 250}.{1 + number % 250}"
                ip.addr("add", index=host.ifindex, address=given, prefixlen=24)
        yield host


def by_the_library() -> tuple[set[rtnetlink.Link], set[rtnetlink.Address]]:
    with IPRoute() as route:
        links = {
            rtnetlink.Link(
                one["index"],
                one.get_attr("IFLA_IFNAME"),
                one.get_attr("IFLA_MTU"),
                one["state"] == "up",
            )
            for one in route.get_links()
        }
        found = {
            rtnetlink.Address(
                one["index"],
                ipaddress.ip_interface(
                    f"{one.get_attr('IFA_LOCAL') or one.get_attr('IFA_ADDRESS')}/{one['prefixlen']}"
                ),
            )
            for one in route.get_addr()
        }
    return links, found


def test_this_host() -> None:
    links, found = by_the_library()
    assert set(rtnetlink.links()) == links
    assert set(rtnetlink.addresses()) == found


@pytest.mark.slow
def test_many_addresses(host: Host) -> None:
    with host.inside():
        links, found = by_the_library()
        assert {link.name for link in rtnetlink.links() if link.is_up} == {"lo", "eth0"}
        assert set(rtnetlink.links()) == links
        assert set(rtnetlink.addresses()) == found
        assert len(found) > 1000
        eth0 = Interface(host.ifindex, "eth0", 1777)
        for address in (host.ipv4, host.ipv6, "10.200.3.250"):
            assert interface_of(address) == eth0
            assert address in addresses()
        assert interface_of("127.9.9.9").name == interface_of("::1").name == "lo"
        with pytest.raises(LookupError, match=r"has the address 10\.200\.4\.1"):
            interface_of("10.200.4.1")


@pytest.mark.slow
def test_an_interface_that_is_down(host: Host) -> None:
    host.set_link(state="down")
    with host.inside():
        assert [link.is_up for link in rtnetlink.links() if link.name == "eth0"] == [False]


def test_what_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="Operation not supported"):
        list(rtnetlink._dump(16 + 0x400 - 4, b""))
