# SPDX-License-Identifier: BSD-2-Clause
"""Serves the operations of COMPOUND, with a module for each family of them."""
