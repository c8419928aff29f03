# SPDX-License-Identifier: BSD-2-Clause
"""Offers a server's metrics to Prometheus, and to all programs that read its format."""

from livedma.ui.metrics.collector import Metrics

__all__ = ["Metrics"]
