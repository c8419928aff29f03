# SPDX-License-Identifier: BSD-2-Clause
"""Speaks NFSv4.1 and 4.2: `server` exports a directory, `client` uses one."""

from livedma.nfs.client import Client, File, Session
from livedma.nfs.numbers import NfsError

__all__ = ["Client", "File", "NfsError", "Session"]
