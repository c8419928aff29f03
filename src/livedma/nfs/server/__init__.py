# SPDX-License-Identifier: BSD-2-Clause
"""Serves NFS, from an RPC to the directory and back; service.py puts it together."""
