# SPDX-License-Identifier: BSD-2-Clause
"""The server: from an RPC to the directory and back; service.py puts it together."""
