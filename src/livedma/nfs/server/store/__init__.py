# SPDX-License-Identifier: BSD-2-Clause
"""Holds the exported directory, as a place for files that clients name by handles.

No operation leads outside the directory, whatever its links, renames and races are. All failures
are `NfsError`. Threads may use one store at the same time, each within `acting_as`.
"""

from __future__ import annotations

from livedma.nfs.server.store.changes import ChangeInfo
from livedma.nfs.server.store.content import Content
from livedma.nfs.server.store.creation import Created, CreateHow, Creation
from livedma.nfs.server.store.credentials import Identity
from livedma.nfs.server.store.listing import Entry, Listing
from livedma.nfs.server.store.metadata import Access
from livedma.nfs.server.store.names import checked_name
from livedma.nfs.server.store.node import Kind, Node
from livedma.nfs.server.store.settings import NOW, Settings
from livedma.nfs.server.store.xattrs import Xattrs

__all__ = [
    "NOW",
    "Access",
    "ChangeInfo",
    "CreateHow",
    "Created",
    "Entry",
    "Identity",
    "Kind",
    "Node",
    "Settings",
    "Store",
    "checked_name",
]


class Store(Creation, Content, Listing, Xattrs):
    """Puts the parts of the store together."""
