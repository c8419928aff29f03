"""What storage sessions and their connections do, seen from outside, ten times a second."""

from livedma.monitor.monitor import Monitor, MonitorError
from livedma.monitor.snapshot import Snapshot

__all__ = ["Monitor", "MonitorError", "Snapshot"]
