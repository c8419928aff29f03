# SPDX-License-Identifier: BSD-2-Clause
"""Finds what limits each connection, with pure functions of snapshots."""
