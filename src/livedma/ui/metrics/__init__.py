# SPDX-License-Identifier: BSD-2-Clause
"""A server's metrics for Prometheus, and for all programs that read its format."""

from livedma.ui.metrics.collector import Metrics

__all__ = ["Metrics"]
