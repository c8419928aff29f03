"""What a server counts, for Prometheus and all that read its format."""

from livedma.ui.metrics.collector import Metrics

__all__ = ["Metrics"]
