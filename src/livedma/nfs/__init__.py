# SPDX-License-Identifier: BSD-2-Clause
"""NFSv4.1 and 4.2: a server of a directory, and a client."""

from livedma.nfs.client import Client, File, Session
from livedma.nfs.numbers import NfsError

__all__ = ["Client", "File", "NfsError", "Session"]
