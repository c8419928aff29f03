# SPDX-License-Identifier: BSD-2-Clause
"""Sees what storage sessions and their connections do, from outside, ten times a second."""

from livedma.monitor.monitor import Monitor, MonitorError
from livedma.monitor.snapshot import Snapshot

__all__ = ["Monitor", "MonitorError", "Snapshot"]
