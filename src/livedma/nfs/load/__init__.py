# SPDX-License-Identifier: BSD-2-Clause
"""Loads NFS servers: many sessions on few connections, measured without Python in the way."""

from livedma.nfs.load.plan import Pattern, Plan, PlanError, Work
from livedma.nfs.load.result import Interval, Result, SessionResult
from livedma.nfs.load.runner import LoadError, Runner

__all__ = [
    "Interval",
    "LoadError",
    "Pattern",
    "Plan",
    "PlanError",
    "Result",
    "Runner",
    "SessionResult",
    "Work",
]
