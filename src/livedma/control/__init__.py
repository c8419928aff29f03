# SPDX-License-Identifier: BSD-2-Clause
"""Finds what limits a connection and acts on it: the diagnosis, the policies, the controller."""
