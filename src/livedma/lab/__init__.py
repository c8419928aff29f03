# SPDX-License-Identifier: BSD-2-Clause
"""Hosts in network namespaces, traffic between them, experiments."""
