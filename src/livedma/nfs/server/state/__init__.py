# SPDX-License-Identifier: BSD-2-Clause
"""Holds what a server remembers of its clients: sessions, open files, locks, delegations."""
