# SPDX-License-Identifier: BSD-2-Clause
"""Runs the commands that try and measure the device: perf and rping."""
