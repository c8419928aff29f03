# SPDX-License-Identifier: BSD-2-Clause
"""Servers that the client is held against, by name: each a context that gives a `Site`.

A user of a site is in the network namespace of the host between the guests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from livedma.lab.guest import Lab
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from nfs_data import Site
from scale import at_scale

__all__ = ["SITES"]

FILES, ENTRIES = at_scale(5000, 150), at_scale(10_000, 1000)


@contextlib.contextmanager
def nfsd_tcp(guests: Lab) -> Iterator[Site]:
    """The kernel's server in guest a, over TCP."""
    guests.a.run("/lab/nfs-server", check=True)
    with guests.host.inside():
        yield Site(guests.a.ipv4, 2049, files=FILES, entries=ENTRIES)


@contextlib.contextmanager
def nfsd_rdma(guests: Lab) -> Iterator[Site]:
    """The same over RDMA."""
    guests.a.run("/lab/nfs-server", check=True)
    with guests.host.inside(), Device(guests.host.ipv4) as device:

        async def connect(address: str, port: int) -> Transport:
            return await rdma_client.connect(address, port, device=device)

        yield Site(guests.a.ipv4, 20049, connect, files=FILES, entries=ENTRIES)


SITES: dict[str, Callable[[Lab], AbstractContextManager[Site]]] = {
    "nfsd-rdma": nfsd_rdma,
    "nfsd-tcp": nfsd_tcp,
}
