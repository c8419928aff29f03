# SPDX-License-Identifier: BSD-2-Clause
"""Experiments: a question, the points it is measured at, and an answer computed from the data."""
