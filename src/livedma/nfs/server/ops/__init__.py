# SPDX-License-Identifier: BSD-2-Clause
"""The operations of COMPOUND, a module for each family of them."""
