# SPDX-License-Identifier: BSD-2-Clause
"""The commands that try and measure the device: perf and rping."""
