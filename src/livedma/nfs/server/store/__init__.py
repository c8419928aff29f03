"""The exported directory, as a place for files that clients name by handles.

Nothing here leads outside the directory, whatever its links, renames and races are. Everything
raises `NfsError`. Threads may use one store at the same time, each within `acting_as`.
"""

from __future__ import annotations

from livedma.nfs.store.changes import ChangeInfo
from livedma.nfs.store.content import Content
from livedma.nfs.store.creation import Created, CreateHow, CreateMode, Creation
from livedma.nfs.store.credentials import Identity
from livedma.nfs.store.listing import Entry, Listing
from livedma.nfs.store.metadata import Access
from livedma.nfs.store.names import checked_name
from livedma.nfs.store.node import Kind, Node
from livedma.nfs.store.settings import NOW, Settings
from livedma.nfs.store.xattrs import Xattrs

__all__ = [
    "NOW",
    "Access",
    "ChangeInfo",
    "CreateHow",
    "CreateMode",
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
    """All of it."""
