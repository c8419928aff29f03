# SPDX-License-Identifier: BSD-2-Clause
"""Runs experiments: each asks a question, measures at points, and computes an answer."""
