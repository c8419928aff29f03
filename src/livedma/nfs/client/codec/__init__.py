# SPDX-License-Identifier: BSD-2-Clause
"""Encodes arguments and decodes results of the client's operations, a module for each family."""
