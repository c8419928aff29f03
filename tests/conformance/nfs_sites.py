"""Servers that the client is held against, by name: each a context that gives a `Site`.

Whoever uses a site is in the network namespace of the host between the guests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from nfs_data import Site

from livedma.lab.guest import Lab

__all__ = ["SITES"]


@contextlib.contextmanager
def nfsd(guests: Lab) -> Iterator[Site]:
    """The kernel's server in guest a, over TCP."""
    guests.a.run("/lab/nfs-server", check=True)
    with guests.host.inside():
        yield Site(guests.a.ipv4, 2049)


SITES: dict[str, Callable[[Lab], AbstractContextManager[Site]]] = {"nfsd-tcp": nfsd}
